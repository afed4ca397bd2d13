"""The relay's two ways to send, side by side: the pipelined sender, and the pool of the SDK's senders."""

from __future__ import annotations

from bench.baselines.relay import TheRelay, publisher
from bench.benchmark import Findings, Live, Plan, Table, interval, median
from bench.broker import Broker
from bench.documents import Source, Workload
from bench.throughput import DELAYS_MS, SHAPES, turn_length
from bench.turns import Samples, ratios, take_turns

_PIPELINED, _POOL = "pipelined", "pool"


class Senders:
    """Events a second and processor time of each."""

    name = "senders"
    about = "the pipelined sender against the pool of the SDK's senders"

    async def run(self, plan: Plan, live: Live) -> Findings:
        rows: list[tuple[str, ...]] = []
        for delay in plan.pick(quick=DELAYS_MS[-1:], full=DELAYS_MS):
            async with Broker(plan.scratch, ack_delay_ms=delay) as broker:
                rows += await _at(broker, plan, live)
        return Findings(tables=[Table("The two ways to send", _COLUMNS, tuple(rows), _PROSE)])


async def _at(broker: Broker, plan: Plan, live: Live) -> list[tuple[str, ...]]:
    source, rows = Source(plan.seed), []
    relays = [
        TheRelay(broker.settings(**publisher(pipelined=name == _PIPELINED)), source, name=name)
        for name in (_PIPELINED, _POOL)
    ]
    try:
        for relay in relays:
            live.step(f"{broker.ack_delay_ms} ms: opening the links of {relay.name}")
            await relay.open()
        for workload in SHAPES:
            found = await take_turns(relays, workload, broker, source, turn_length(plan), live)
            rows.append(_row(broker.ack_delay_ms, workload, found[_PIPELINED], found[_POOL]))
    finally:
        for relay in relays:
            await relay.close()
    return rows


def _row(delay: int, workload: Workload, pipelined: Samples, pool: Samples) -> tuple[str, ...]:
    quotients = ratios(pipelined, pool)
    lowest, highest = interval(quotients)
    return (
        f"{workload.name}, {delay} ms",
        *(f"{median(each.rates):,.0f}" for each in (pool, pipelined)),
        f"{median(quotients):.2f} ({lowest:.2f} to {highest:.2f})",
        *(f"{median(each.processor_us):.0f}" for each in (pool, pipelined)),
    )


_COLUMNS = (
    "workload",
    "pool, events/s",
    "pipelined, events/s",
    "pipelined to pool",
    "pool, µs/event",
    "pipelined, µs/event",
)
_PROSE = "`RELAY_PIPELINED` chooses: the rates of the same relay with each, and the processor time of its process."
