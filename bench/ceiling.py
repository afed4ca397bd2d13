"""The local broker's own ceiling: how much it accepts when the senders are not the limit."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.benchmark import Findings, Live, Plan, Table, median, percent
from bench.broker import Broker
from local.stack.parts import Part

# Messages per batch, and batches per process: about a second's work for the broker.
_QUICK = ((1, 2000), (10, 800), (100, 80))
_FULL = ((1, 6000), (10, 2400), (100, 240))
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Flood:
    """The result of one flood.

    Attributes:
        batches: Batches a second, of all processes.
        broker_us: Processor time of the broker for each batch, in microseconds.
        broker_share: The share of one processor that the broker used.
    """

    batches: float
    broker_us: float
    broker_share: float


class BrokerCeiling:
    """Batches a second from one and from two processes that only send."""

    name = "broker"
    about = "the local broker's own ceiling, to recognise figures that it limits"

    async def run(self, plan: Plan, live: Live) -> Findings:
        rows = []
        repeats = plan.pick(quick=1, full=3)
        for per_batch, batches in plan.pick(quick=_QUICK, full=_FULL):
            for processes in plan.pick(quick=(2,), full=(1, 2)):
                live.step(f"broker's ceiling: {processes} processes, batches of {per_batch}")
                floods: list[Flood] = []
                for repeat in range(repeats):
                    async with Broker(plan.scratch) as broker:
                        seed = plan.seed + 1000 * repeat
                        floods.append(await flood(broker, processes, per_batch, batches, seed, plan.scratch))
                    live.rate(floods[-1].batches * per_batch, "messages/s")
                rate = median([each.batches for each in floods])
                rows.append(
                    (
                        f"{processes} x, batches of {per_batch}",
                        f"{rate:,.0f}",
                        f"{rate * per_batch:,.0f}",
                        f"{median([each.broker_us for each in floods]):,.0f}",
                        percent(median([each.broker_share for each in floods])),
                    )
                )
        columns = ("flooding processes", "batches/s", "messages/s", "broker µs/batch", "broker's core")
        return Findings(tables=[Table("The broker's own ceiling", columns, tuple(rows))])


async def flood(broker: Broker, processes: int, per_batch: int, batches: int, seed: int, logs: Path) -> Flood:
    """Send `batches` batches from each process, all processes at once.

    Raises:
        PartFailed: One of them failed.
    """
    async with AsyncExitStack() as resources, asyncio.timeout(_TIMEOUT_S):
        started = []
        for number in range(processes):
            part = await Part.start(
                *(f"flood-{number}", "bench.load", "--connection-string", broker.connection_string),
                *("--seed", str(seed + number), "--per-batch", str(per_batch), "--batches", str(batches)),
                log=logs / f"flood-{number}.log",
            )
            resources.push_async_callback(part.stop)
            started.append(part)
        before = broker.processor_seconds()
        for part in started:
            part.send_line("go")
        answers = [json.loads(await _answer(part)) for part in started]
    used, took = broker.processor_seconds() - before, max(float(answer["seconds"]) for answer in answers)
    sent = sum(int(answer["batches"]) for answer in answers)
    return Flood(sent / took, used / sent * 1e6, used / took)


async def _answer(part: Part) -> bytes:
    if line := await part.output.readline():
        return line
    raise part.failure("ended before it had sent everything")
