"""Points of the capacity model that take the whole stack: what the host's pages cost, hosts, latency."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson

from bench import hosts, latency
from bench.benchmark import Live, Plan
from bench.capacity_flow import Costs, Instance, Shape, latencies, throughput
from bench.capacity_points import Compared
from bench.outbox import Outbox, balanced_keys, contact, event
from bench.stage import ProcessorUse, Stage, StageOptions

_PAGE_SIZES = (50, 500)
_DOCUMENTS = 4000
_WITHIN_S = 60.0
_SENDERS = 8
_POLL_DELAY_MS = 250
# At 300 with this delay, leases pause or not by how long a page takes beside four other processes: no test of a
# model of one process.
_RATE = 150.0
_PARTITIONS = 4
_SIMULATED_S = 60.0


async def page_costs(costs: Costs, plan: Plan, live: Live) -> Costs:
    """The costs with those of the local host: documents of another type, in small and in large pages."""
    small, large = _PAGE_SIZES
    options = StageOptions(logs=Path(plan.scratch) / "pages", partitions=1, subscribed=False)
    found = {}
    async with Stage(options) as stage, Outbox(stage.settings["COSMOS"]) as outbox:
        keys = balanced_keys(1, prefix="other")
        for size in _PAGE_SIZES:
            live.step(f"capacity: pages of {size} documents of another type")
            found[size] = await _pages(stage, outbox, [contact(next(keys), 1) for _ in range(_DOCUMENTS)], size)
    fewer, more = _DOCUMENTS / large, _DOCUMENTS / small
    page = max(0.0, (found[small][1] - found[large][1]) / (more - fewer))
    document = max(0.0, (found[large][1] - fewer * page) / _DOCUMENTS)
    elapsed, processor = found[small]
    return replace(
        costs,
        page=max(0.0, (elapsed - processor) / more),
        page_processor=page,
        page_document=max(0.0, document - costs.document),
    )


async def _pages(
    stage: Stage, outbox: Outbox, documents: list[dict[str, object]], size: int
) -> tuple[float, float]:
    """Seconds, and processor seconds, until a host has been through the documents in pages of that size."""
    (host,) = await stage.start_hosts(1, RELAY_MAX_ITEMS=str(size), RELAY_POLL_DELAY_MS="100")
    async with stage.feed_held():
        before = await stage.delivered(host)
        await outbox.fill(documents)
    use = ProcessorUse({"host": host.pid})
    await stage.until_delivered(host, before + len(documents), within_s=_WITHIN_S)
    elapsed, processor = use.elapsed(), use.seconds()["host"]
    await stage.stop_hosts()
    return elapsed, processor


async def compare_hosts(costs: Costs, plan: Plan, live: Live) -> list[Compared]:
    """One host and two, with other senders than those the target is judged by."""
    measured = await hosts.compare(_SENDERS, plan, live)
    size = len(orjson.dumps(event("0" * 48, next(balanced_keys(1)))))
    shape = Shape(keys=hosts.PAGE, per_key=1, size=size)
    found = []
    for number, turns in enumerate(measured, 1):
        # The hosts share one broker: to each, it looks as much slower.
        shared = replace(costs, broker_single=costs.broker_single * number)
        instance = Instance(hosts.PARTITIONS // number, _SENDERS, hosts.ACK_DELAY_MS / 1000)
        predicted = number * throughput(instance, shape, shared)
        name = f"{number} host(s), {_SENDERS} senders each, {hosts.ACK_DELAY_MS} ms, whole stack"
        found.append(Compared(name, (predicted,) * len(turns), tuple(turn.rate for turn in turns)))
    return found


async def compare_latency(costs: Costs, plan: Plan, live: Live) -> Compared:
    """The median from commit to subscriber, at a poll delay that is not among the targets'."""
    (windows,) = (await latency.measure(_PARTITIONS, (_POLL_DELAY_MS,), plan, live, rate=_RATE)).values()
    size = len(orjson.dumps(event("0" * 48, next(balanced_keys(1)))))
    instance = Instance(_PARTITIONS, 32, 0.0, poll_delay=_POLL_DELAY_MS / 1000)
    expected = latencies(instance, _RATE, costs, size=size, others=1.0, seconds=_SIMULATED_S, seed=plan.seed)
    return Compared(
        f"median latency at {_RATE:.0f} events/s, poll delay {_POLL_DELAY_MS} ms, whole stack",
        (latency.percentile(expected, 0.5) * 1000,) * len(windows),
        tuple(latency.percentile(window.committed, 0.5) for window in windows),
        "ms",
    )
