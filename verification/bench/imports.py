"""How long importing function_app takes, relative to importing azure.functions and azure.servicebus.aio alone.

A cold start waits for this import before the first invocation. Each import happens in its own process, with
bytecode already compiled, the two in turns.
"""

from __future__ import annotations

from local.stack.parts import output_of
from verification.bench.benchmark import TIMES, Bound, Findings, Live, Plan, Target
from verification.bench.offline import ENVIRONMENT

_CLOCKED = "import time; t = time.perf_counter(); import {what}; print((time.perf_counter() - t) * 1000)"
_RELAY = "function_app"
_BARE = "azure.functions, azure.servicebus.aio"
_TIMEOUT_S = 60.0


class Imports:
    """Import time, in turns."""

    name = "imports"
    about = "importing function_app, relative to importing its two SDKs alone"

    async def run(self, plan: Plan, live: Live) -> Findings:
        times: dict[str, list[float]] = {_RELAY: [], _BARE: []}
        for what in times:
            await _import_ms(what)
        repeats = plan.pick(quick=20, full=25)
        for repeat in range(repeats):
            for what in (_RELAY, _BARE) if repeat % 2 else (_BARE, _RELAY):
                live.step(f"import {what}, {repeat + 1} of {repeats}")
                times[what].append(await _import_ms(what))
                live.rate(times[what][-1], "ms")
        ratios = tuple(ours / bare for ours, bare in zip(times[_RELAY], times[_BARE], strict=True))
        return Findings(
            [Target("importing function_app, against its two SDKs alone", ratios, TIMES, Bound.AT_MOST, 1.1)]
        )


async def _import_ms(what: str) -> float:
    """Import it in a new process; returns milliseconds. Raises RuntimeError if that fails."""
    return float(await output_of("-c", _CLOCKED.format(what=what), environment=ENVIRONMENT, within_s=_TIMEOUT_S))
