"""Starts tests.telemetry.worker, talks to it, kills it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# As the platform and infra/modules/functions.bicep set them; the last two keep the exporter off the network: its
# statistics go to Microsoft's own endpoint, its feature switches come from one.
_DEPLOYED = {
    "FUNCTIONS_WORKER_RUNTIME": "python",
    "WEBSITE_SITE_NAME": "func-relay",
    "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY": "true",
    "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
    "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED": "true",
}

# Seconds instead of a minute for metrics: what is exported stays the same, and comes sooner.
QUICKLY = {
    "OTEL_METRIC_EXPORT_INTERVAL": "1000",
    "OTEL_BSP_SCHEDULE_DELAY": "500",
    "OTEL_BLRP_SCHEDULE_DELAY": "500",
}


class WorkerProcess:
    """One worker. Its `greeting` has the seconds of processor time that configuring took and the memory then."""

    def __init__(self, process: asyncio.subprocess.Process, greeting: dict[str, Any]) -> None:
        self._process = process
        self.greeting = greeting

    async def ask(self, within_s: float = 40, **command: Any) -> dict[str, Any]:
        """Send one command; returns the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()
        return await _line(self._process, within_s)

    async def handle(
        self, documents: list[Any], invocation_id: str = "i1", retry_count: int = 0
    ) -> dict[str, Any]:
        """One attempt at these documents."""
        return await self.ask(handle=documents, invocation_id=invocation_id, retry_count=retry_count)

    async def kill(self) -> None:
        """As the host kills its worker, and as a crash ends it: without a last word."""
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def running_worker(
    folder: Path, connections: dict[str, str], connection_string: str | None, **environment: str
) -> AsyncIterator[WorkerProcess]:
    """A worker with the app on these connections, exporting to this endpoint; without one it exports nothing."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "COSMOS"))}
    telemetry = {} if connection_string is None else {"APPLICATIONINSIGHTS_CONNECTION_STRING": connection_string}
    if connection_string is None:
        environment["PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY"] = "false"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.telemetry.worker"),
        cwd=ROOT,
        env=inherited | _DEPLOYED | connections | telemetry | {"TMPDIR": str(folder)} | environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=16 * 1024 * 1024,
    )
    try:
        yield WorkerProcess(process, await _line(process, 40))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process, within_s: float) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(within_s):
        line = await process.stdout.readline()
    assert line, "the worker ended; its error is above"
    answer: dict[str, Any] = json.loads(line)
    return answer
