"""Memory of one invocation over 1 000 documents of 20 KB, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from bench.benchmark import TIMES, Bound, Figure, Findings, Live, Plan, Target
from bench.broker import Broker
from bench.documents import TWENTY_KB, Source, Workload
from local.stack.parts import ROOT

_WORKLOAD = Workload(keys=100, per_key=10, size=TWENTY_KB)
_TIMEOUT_S = 120.0


class Memory:
    """How far the resident size rises, over the payload: the JSON text that the trigger delivers."""

    name = "memory"
    about = "memory for an invocation of 1 000 documents of 20 KB, beside the payload"

    async def run(self, plan: Plan, live: Live) -> Findings:
        source = Source(plan.seed)
        whole: list[float] = []
        relay: list[float] = []
        payload: list[float] = []
        async with Broker(plan.scratch) as broker:
            repeats = plan.pick(quick=1, full=5)
            for repeat in range(repeats):
                live.step(f"memory of an invocation, {repeat + 1} of {repeats}")
                found = await footprint(broker, source, _WORKLOAD, plan.scratch)
                whole.append(found["whole"] / found["payload"])
                relay.append(found["relay"] / found["payload"])
                payload.append(found["payload"] / 1e6)
                live.rate(whole[-1], TIMES)
        figure = Figure(
            "memory/text, documents and relay",
            TIMES,
            tuple(whole),
            "peak growth of the resident size over the payload",
        )
        return Findings(
            figures=[
                Figure("memory/relay alone", TIMES, tuple(relay), "from when the documents were decoded on"),
                Figure("memory/payload", "MB", tuple(payload)),
            ],
            targets=[
                Target(
                    "memory for an invocation of 1 000 documents of 20 KB, over the payload",
                    figure,
                    Bound.AT_MOST,
                    3.0,
                    key="memory",
                )
            ],
        )


async def footprint(broker: Broker, source: Source, workload: Workload, scratch: Path) -> dict[str, float]:
    """Relay one batch of the workload in a new process; returns what `bench.footprint` prints.

    Raises:
        RuntimeError: The process failed.
    """
    path = scratch / "footprint.json"
    path.write_text(next(source.texts(workload)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.footprint", "--connection-string", broker.connection_string),
        *("--text", str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    async with asyncio.timeout(_TIMEOUT_S):
        out, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"bench.footprint failed: {errors.decode(errors='replace')[-2000:]}")
    found: dict[str, float] = json.loads(out)
    return found
