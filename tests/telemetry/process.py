"""Has a nursery start tests.telemetry.worker, talks to it, kills it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.watchdog import WATCHDOG_S
from tests.telemetry.nursery import Nursery

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

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: dict[str, Any]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.greeting = greeting

    async def ask(self, **command: Any) -> dict[str, Any]:
        """Send one command; returns the answer."""
        self._writer.write(json.dumps(command).encode() + b"\n")
        await self._writer.drain()
        return await _line(self._reader)

    async def handle(
        self, documents: list[Any], invocation_id: str = "i1", retry_count: int = 0, stream: str = "default"
    ) -> dict[str, Any]:
        """One attempt at these documents, by this stream."""
        return await self.ask(
            handle=documents, invocation_id=invocation_id, retry_count=retry_count, stream=stream
        )

    async def kill(self) -> None:
        """Kill the worker as the host does, and as a crash ends it: without a last word."""
        if not self._reader.at_eof():
            os.kill(self.greeting["pid"], signal.SIGKILL)
        async with asyncio.timeout(WATCHDOG_S):
            await self._reader.read()


@asynccontextmanager
async def running_worker(
    nursery: Nursery,
    folder: Path,
    connections: dict[str, str],
    connection_string: str | None,
    **environment: str,
) -> AsyncIterator[WorkerProcess]:
    """A worker with the app on these connections, exporting to this endpoint; without one it exports nothing."""
    telemetry = {} if connection_string is None else {"APPLICATIONINSIGHTS_CONNECTION_STRING": connection_string}
    if connection_string is None:
        environment["PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY"] = "false"
    channel = nursery.start(_DEPLOYED | connections | telemetry | {"TMPDIR": str(folder)} | environment)
    reader, writer = await asyncio.open_connection(sock=channel, limit=16 * 1024 * 1024)
    try:
        process = WorkerProcess(reader, writer, await _line(reader))
        try:
            yield process
        finally:
            await process.kill()
    finally:
        writer.close()


async def _line(reader: asyncio.StreamReader) -> dict[str, Any]:
    async with asyncio.timeout(WATCHDOG_S):
        line = await reader.readline()
    assert line, "the worker ended; its error is above"
    answer: dict[str, Any] = json.loads(line)
    return answer
