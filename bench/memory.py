"""Memory of one invocation with 1 000 events of 20 KB, in its own process."""

from __future__ import annotations

import json
from pathlib import Path

from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Target
from bench.broker import Broker
from bench.documents import TWENTY_KB, Source, Workload
from local.stack.parts import output_of

_WORKLOAD = Workload(keys=100, per_key=10, size=TWENTY_KB)
_TIMEOUT_S = 120.0


class Memory:
    """Growth of the resident size, relative to the payload: the JSON text that the trigger delivers."""

    name = "memory"
    about = "memory of an invocation with 1 000 events of 20 KB, against its payload"

    async def run(self, plan: Plan, live: Live) -> Findings:
        source = Source(plan.seed)
        growth: list[float] = []
        async with Broker(plan.scratch) as broker:
            repeats = plan.pick(quick=1, full=5)
            for repeat in range(repeats):
                live.step(f"memory of an invocation, {repeat + 1} of {repeats}")
                found = await footprint(broker, source, _WORKLOAD, plan.scratch)
                growth.append(found["whole"] / found["payload"])
                live.rate(growth[-1], TIMES)
        name = "memory of an invocation with 1 000 events of 20 KB, against its payload"
        return Findings([Target(name, tuple(growth), TIMES, Bound.AT_MOST, 3.0)])


async def footprint(broker: Broker, source: Source, workload: Workload, scratch: Path) -> dict[str, float]:
    """Relay one batch of the workload in a new process; returns what `bench.footprint` prints.

    Raises:
        RuntimeError: The process failed.
    """
    path = scratch / "footprint.json"
    path.write_text(next(source.texts(workload)))
    command = ("-m", "bench.footprint", "--connection-string", broker.connection_string, "--text", str(path))
    found: dict[str, float] = json.loads(await output_of(*command, within_s=_TIMEOUT_S))
    return found
