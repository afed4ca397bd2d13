"""How long importing function_app takes, beside importing azure.functions and azure.servicebus.aio alone.

It is what a cold start waits for before the first invocation. Each import happens in a process of its own, with
bytecode already compiled, the two in turns.
"""

from __future__ import annotations

import asyncio
import os
import sys

from bench.benchmark import TIMES, Bound, Figure, Findings, Live, Plan, Target
from bench.offline import ENVIRONMENT
from local.stack.parts import ROOT

_CLOCKED = "import time; t = time.perf_counter(); import {what}; print((time.perf_counter() - t) * 1000)"
_RELAY = "function_app"
_BARE = "azure.functions, azure.servicebus.aio"
_TIMEOUT_S = 60.0


class Imports:
    """Import time, in turns."""

    name = "imports"
    about = "importing function_app beside importing its two SDKs alone"

    async def run(self, plan: Plan, live: Live) -> Findings:
        times: dict[str, list[float]] = {_RELAY: [], _BARE: []}
        for what in times:
            await _import_ms(what)
        repeats = plan.pick(quick=5, full=25)
        for repeat in range(repeats):
            for what in (_RELAY, _BARE) if repeat % 2 else (_BARE, _RELAY):
                live.step(f"import {what}, {repeat + 1} of {repeats}")
                times[what].append(await _import_ms(what))
                live.rate(times[what][-1], "ms")
        compared = tuple(ours / bare for ours, bare in zip(times[_RELAY], times[_BARE], strict=True))
        ratio = Figure("import/function_app to its SDKs", TIMES, compared)
        return Findings(
            figures=[Figure(f"import/{what}", "ms", tuple(values)) for what, values in times.items()],
            targets=[
                Target(
                    "import of function_app against its two SDKs alone", ratio, Bound.AT_MOST, 1.2, key="import"
                )
            ],
        )


async def _import_ms(what: str) -> float:
    """Import it in a new process; returns milliseconds. Raises RuntimeError where that fails."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _CLOCKED.format(what=what),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
    )
    async with asyncio.timeout(_TIMEOUT_S):
        out, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"import {what} failed: {errors.decode(errors='replace')[-2000:]}")
    return float(out)
