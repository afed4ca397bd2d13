"""How throughput grows with keys in an invocation, the size of an event, leases and hosts (docs/capacity.md)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench.backlog import Group
from bench.baselines.relay import TheRelay
from bench.benchmark import Findings, Live, Plan, median
from bench.broker import Broker
from bench.curves import Curve
from bench.documents import Source, Workload
from bench.outbox import balanced_keys
from bench.turns import Length, take_turns

_KEYS = (1, 10, 100, 1_000, 10_000)
_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 200_000)
_LEASES = (1, 2, 4, 8, 16)
_MORE_HOSTS = (2, 4)

_ACK_DELAY_MS = 10
# A slowdown of the machine for some seconds affects one round of each point, and not all turns of one.
_ROUNDS = 3
_LENGTH = Length(repeats=3, seconds=0.3)

# With 10 ms, one lease would already use the two cores of the machine that the stack runs on.
_LEASE_ACK_DELAY_MS = 100
_PAGE = 100
_LEASE_TURNS = 3
_LEASE_SETTINGS = {"RELAY_MAX_ITEMS": str(_PAGE)}


class Growth:
    """The curves. A quick run has none."""

    name = "growth"
    about = "how throughput grows with keys, sizes, leases and hosts (full runs only)"

    async def run(self, plan: Plan, live: Live) -> Findings:
        if not plan.full:
            return Findings()
        keys = {Workload(keys, 1): float(keys) for keys in _KEYS}
        sizes = {Workload(10, 10, size): float(size) for size in _SIZES}
        rates = await _rates((*keys, *sizes), plan, live)
        by_leases = [(leases, await _backlogs(leases, 1, plan, live)) for leases in _LEASES]
        most, alone = by_leases[-1]
        by_hosts = [(1, alone), *[(hosts, await _backlogs(most, hosts, plan, live)) for hosts in _MORE_HOSTS]]
        by_keys = tuple((x, rates[workload]) for workload, x in keys.items())
        by_size = tuple((x, x * rates[workload] / 1e6) for workload, x in sizes.items())
        return Findings(
            curves=[
                Curve("keys", "keys in an invocation", "events/s", by_keys),
                Curve("size", "bytes an event", "MB/s", by_size),
                Curve("leases", "leases", "events/s", tuple(by_leases)),
                Curve("hosts", "hosts", "events/s", tuple(by_hosts)),
            ]
        )


async def _rates(workloads: Sequence[Workload], plan: Plan, live: Live) -> dict[Workload, float]:
    """Return the relay's median rate at each of the workloads, in events a second."""
    rates: dict[Workload, list[float]] = {workload: [] for workload in workloads}
    async with Broker(plan.scratch, ack_delay_ms=_ACK_DELAY_MS) as broker:
        source = Source(plan.seed)
        relay = TheRelay(broker.settings(), source)
        try:
            await relay.open()
            for workload in (*workloads,) * _ROUNDS:
                found = await take_turns([relay], workload, broker, source, _LENGTH, live)
                rates[workload] += found[relay.name].rates
        finally:
            await relay.close()
    return {workload: median(found) for workload, found in rates.items()}


async def _backlogs(leases: int, hosts: int, plan: Plan, live: Live) -> float:
    """Return the median rate at which backlogs of events with a key each are relayed, in events a second."""
    group = Group(
        balanced_keys(leases),
        hosts=hosts,
        partitions=leases,
        ack_delay_ms=_LEASE_ACK_DELAY_MS,
        settings=_LEASE_SETTINGS,
    )
    rates = []
    async with AsyncExitStack() as resources:
        live.step(f"{leases} lease(s): starting {hosts} host(s)")
        await group.open(resources, plan.scratch / f"growth-{leases}-{hosts}", warm_up=_PAGE * leases)
        for number in range(_LEASE_TURNS):
            live.step(f"{leases} lease(s), {hosts} host(s), {number + 1} of {_LEASE_TURNS}")
            rates.append((await group.relay(_events(leases))).rate)
            live.rate(rates[-1], "events/s")
    return median(rates)


def _events(leases: int) -> int:
    """Return the number of events for five pages or more for each lease, and ten for one."""
    return _PAGE * max(10, 5 * leases)
