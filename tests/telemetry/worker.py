"""The function app in its own process, with the exporter configured as the Python worker configures it.

Reads one command a line from standard input, as JSON, and answers each with a line of JSON:

- `{"handle": [documents], "invocation_id": …, "retry_count": …, "stream": …}`: one attempt of a stream; answers
  `published`, or `error`
- `{"look": true}`: one look at the leases, as the timer takes it each minute
- `{"attempts": n, "events": n}`: that many attempts at fresh events; answers `cpu_s` and `mb`
- `{"flush": true}`: export at once what waits
- `{"logged": true}`: the records that reached the root logger since the app was loaded, as the host would get them
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import time
from typing import Any

from tests.support.outbox import event
from tests.support.watchdog import WATCHDOG_S


class Shown(logging.Handler):
    """Keeps what the worker would hand to the host, which shows it as `Function.relay.User`.

    The loggers left out are the worker's own, which the host takes for system logs.
    https://github.com/Azure/azure-functions-python-worker/blob/dev/workers/proxy_worker/logging.py
    """

    _SYSTEM = ("proxy_worker", "azure_functions_runtime", "azure.functions")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(self._SYSTEM):
            self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


def configure() -> Shown:
    """Do what the worker does before it loads the app.

    `initialize_azure_monitor` in otel.py of azure-functions-runtime 1.3.0, and the root logger's level and handler
    of its proxy_worker/logging.py.
    """
    from azure.monitor.opentelemetry import configure_azure_monitor

    shown = Shown()
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger().addHandler(shown)
    os.environ.setdefault("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "azure_functions")
    configure_azure_monitor(
        connection_string=os.environ["APPLICATIONINSIGHTS_CONNECTION_STRING"],
        logger_name=os.environ.get("PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME", ""),
    )
    return shown


def flush() -> None:
    """Export what waits. Nothing does this in the deployed worker."""
    from opentelemetry import metrics, trace
    from opentelemetry._logs import get_logger_provider

    providers: tuple[Any, ...] = (trace.get_tracer_provider(), metrics.get_meter_provider(), get_logger_provider())
    for provider in providers:
        if hasattr(provider, "force_flush"):
            # Its own limit of 10 or 30 s is none for a busy machine, which then has fewer rows.
            assert provider.force_flush(WATCHDOG_S * 1000)


class Worker:
    """Runs the commands, on the app's own relay."""

    def __init__(self, shown: Shown) -> None:
        import function_app

        self._backends: dict[str, Any] = {each.settings.stream: each for each in function_app.backends}
        self._shown = shown
        # What was logged before the app was loaded is the worker's own.
        shown.lines.clear()
        self._sent = 0

    async def do(self, command: dict[str, Any]) -> dict[str, Any]:
        """Run one command; returns its answer."""
        if "handle" in command:
            return await self._handle(**command)
        if "look" in command:
            await self._backends["default"].watch.look()
            return {}
        if "attempts" in command:
            return await self._attempts(command["attempts"], command["events"])
        if "flush" in command:
            await asyncio.to_thread(flush)
            return {}
        if "logged" in command:
            return {"lines": self._shown.lines}
        raise ValueError(f"no such command: {command}")

    async def _handle(
        self, handle: list[Any], invocation_id: str, retry_count: int = 0, stream: str = "default"
    ) -> dict[str, Any]:
        from relay.core.errors import RelayError

        try:
            outcome = await self._backends[stream].relay.handle(handle, invocation_id, retry_count)
        except RelayError as error:
            return {"error": type(error).__name__}
        return {"published": outcome.published}

    async def _attempts(self, attempts: int, events: int) -> dict[str, Any]:
        cpu = time.process_time()
        for _ in range(attempts):
            self._sent += 1
            name = f"{self._sent:06x}"
            traceparents = (f"00-{self._sent:024x}{n + 1:08x}-{n + 1:016x}-01" for n in range(events))
            documents = [
                event(f"{name}-{n}", f"k-{n}", name="x" * 200) | {"traceparent": each, "_ts": int(time.time())}
                for n, each in enumerate(traceparents)
            ]
            await self._backends["default"].relay.handle(documents, f"invocation-{name}")
        return {"cpu_s": time.process_time() - cpu, "mb": peak_mb()}


def peak_mb() -> float:
    """The most memory this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def main() -> None:
    """Answer commands until standard input ends."""
    began = time.process_time()
    exporting = os.environ.get("PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY") == "true"
    shown = configure() if exporting else Shown()
    configured_s = time.process_time() - began
    worker = Worker(shown)
    print(json.dumps({"pid": os.getpid(), "configured_s": configured_s, "mb": peak_mb()}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await worker.do(json.loads(line))), flush=True)
