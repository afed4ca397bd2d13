"""The local broker's own ceiling: how much it takes when nothing on the other side is in its way."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass

from bench.benchmark import Figure, Findings, Live, Plan, Table
from bench.broker import Broker
from bench.turns import middle
from local.stack.parts import ROOT
from outbox_emulators.process import READY

# Messages in a batch, and batches for each process: about a second's work for the broker.
_QUICK = ((1, 2000), (10, 800), (100, 80))
_FULL = ((1, 6000), (10, 2400), (100, 240))
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Flood:
    """What one flood reached.

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
    about = "the local broker's own ceiling, so that no figure is the broker's by mistake"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings, rows = Findings(), []
        repeats = plan.pick(quick=1, full=3)
        for per_batch, batches in plan.pick(quick=_QUICK, full=_FULL):
            for processes in plan.pick(quick=(2,), full=(1, 2)):
                live.step(f"broker's ceiling: {processes} processes, batches of {per_batch}")
                floods: list[Flood] = []
                for repeat in range(repeats):
                    async with Broker(plan.scratch) as broker:
                        seed = plan.seed + 1000 * repeat
                        floods.append(await flood(broker, processes, per_batch, batches, seed))
                    live.rate(floods[-1].batches * per_batch, "messages/s")
                name = f"broker/{processes} processes, batches of {per_batch}"
                rates = tuple(each.batches for each in floods)
                findings.figures += [
                    Figure(name, "batches/s", rates),
                    Figure(f"{name}, processor", "µs/batch", tuple(each.broker_us for each in floods)),
                ]
                rows.append(
                    (
                        f"{processes} x, batches of {per_batch}",
                        f"{middle(rates):,.0f}",
                        f"{middle(rates) * per_batch:,.0f}",
                        f"{middle([each.broker_us for each in floods]):,.0f}",
                        f"{100 * middle([each.broker_share for each in floods]):.0f} %",
                    )
                )
        columns = ("flooding processes", "batches/s", "messages/s", "broker µs/batch", "broker's core")
        findings.tables.append(Table("The broker's own ceiling", columns, tuple(rows)))
        return findings


async def flood(broker: Broker, processes: int, per_batch: int, batches: int, seed: int) -> Flood:
    """Have so many processes send so many batches each, all at once.

    Raises:
        RuntimeError: One of them failed.
    """
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.load", "--connection-string", broker.connection_string),
            *("--seed", str(seed + number), "--per-batch", str(per_batch), "--batches", str(batches)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        for number in range(processes)
    ]
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for process in started:
                await _line(process, until=READY.strip())
            before = broker.processor_seconds()
            for process in started:
                assert process.stdin is not None
                process.stdin.write(b"go\n")
                await process.stdin.drain()
            answers = [json.loads(await _line(process, until="{")) for process in started]
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()
    used, took = broker.processor_seconds() - before, max(float(answer["seconds"]) for answer in answers)
    sent = sum(int(answer["batches"]) for answer in answers)
    return Flood(sent / took, used / sent * 1e6, used / took)


async def _line(process: asyncio.subprocess.Process, *, until: str) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if line.decode().startswith(until):
            return line.decode()
    raise RuntimeError(f"a flooding process ended with exit code {await process.wait()}")
