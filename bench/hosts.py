"""Two Functions hosts against one, where the round trip to Service Bus is the limit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench.backlog import Group, Turn
from bench.baselines.relay import publisher
from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent
from bench.outbox import balanced_keys
from bench.testbed import OTHERS

_PARTITIONS = 4
_ACK_DELAY_MS = 10
_SENDERS = 4
_PAGE = 100


class Hosts:
    """The benchmark."""

    name = "hosts"
    about = "two Functions hosts against one: four leases, a broker that answers after 10 ms"

    async def run(self, plan: Plan, live: Live) -> Findings:
        one, two = await _compare(plan, live)
        ratios = tuple(theirs.rate / own.rate for own, theirs in zip(one, two, strict=True))
        target = Target("two hosts against one, four leases, 10 ms", ratios, TIMES, Bound.AT_LEAST, 1.8)
        rows = tuple(_row(hosts, turns) for hosts, turns in ((1, one), (2, two)))
        return Findings([target], [Table("Two hosts against one", _COLUMNS, rows, _PROSE)])


async def _compare(plan: Plan, live: Live) -> tuple[list[Turn], list[Turn]]:
    """Alternate turns of one host and of two; both groups are up all the time, one of them idle."""
    turns: dict[int, list[Turn]] = {1: [], 2: []}
    repeats = plan.pick(quick=3, full=7)
    # About two seconds for one host, and half of that for two.
    events = _SENDERS * plan.pick(quick=120, full=200)
    async with AsyncExitStack() as resources:
        groups = [_group(hosts) for hosts in (1, 2)]
        for group in groups:
            live.step(f"starting {group.hosts} host(s) with {_SENDERS} senders")
            # Each host's share of these has at least as many keys as the host has senders.
            warm_up = 2 * group.hosts * max(_SENDERS, _PARTITIONS)
            await group.open(resources, plan.scratch / f"{group.hosts}-hosts", warm_up=warm_up)
        for repeat in range(repeats):
            for group in groups if repeat % 2 else reversed(groups):
                live.step(f"{group.hosts} host(s) with {_SENDERS} senders, {repeat + 1} of {repeats}")
                turn = await group.relay(events)
                turns[group.hosts].append(turn)
                live.rate(turn.rate, "events/s")
    return turns[1], turns[2]


def _group(hosts: int) -> Group:
    settings = {
        **publisher(pipelined=False),
        "RELAY_SENDERS": str(_SENDERS),
        "RELAY_MAX_ITEMS": str(_PAGE),
        "RELAY_POLL_DELAY_MS": "500",
    }
    keys = balanced_keys(_PARTITIONS)
    return Group(keys, hosts=hosts, partitions=_PARTITIONS, ack_delay_ms=_ACK_DELAY_MS, settings=settings)


def _row(hosts: int, turns: Sequence[Turn]) -> tuple[str, ...]:
    def share(prefix: str) -> str:
        used = [value for turn in turns for name, value in turn.shares.items() if name.startswith(prefix)]
        return percent(sum(used) / len(turns))

    return (
        str(hosts),
        f"{median([turn.rate for turn in turns]):.0f}",
        f"{hosts * _SENDERS / _ACK_DELAY_MS * 1000:.0f}",
        share("host"),
        share("broker"),
        share(OTHERS),
    )


_COLUMNS = (
    "hosts",
    "events/s",
    "senders / 10 ms",
    "of a core: hosts",
    "of a core: broker",
    "of a core: all others",
)
_PROSE = (
    "Each event has its own key, so every event is a send and a round trip. The backlog is written while the "
    "change feed is blocked, over keys that fill the four partitions equally. Leases are balanced and all links "
    "open before the clock starts. Rates are counted at the topic between 10 % and 90 % of the backlog. Each host "
    f"has {_SENDERS} senders of the SDK's and no pipelined sender, so that the round trip limits both groups: all "
    "processes share the machine's cores, and a host with the default settings may use up one of them."
)
