"""A local ingestion endpoint of Application Insights, which keeps what the exporter sends to it."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.support.watchdog import WATCHDOG_S

Envelope = dict[str, Any]

# Any key: nothing but this endpoint sees it.
INSTRUMENTATION_KEY = "00000000-0000-0000-0000-000000000001"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request of the exporter: its length as sent and its content as JSON, in bytes, and the envelopes."""

    sent_bytes: int
    json_bytes: int
    envelopes: tuple[Envelope, ...]


class Ingestion:
    """Answers as the service does, `status` to every delivery; its own port on 127.0.0.1.

    Deliveries are POST /v2.1/track with a JSON list of envelopes, which may be compressed. The answer for
    live metrics is that nobody is watching.
    https://github.com/Azure/azure-sdk-for-python/tree/main/sdk/monitor/azure-monitor-opentelemetry-exporter/swagger
    https://learn.microsoft.com/azure/azure-monitor/app/live-stream
    """

    def __init__(self) -> None:
        self.status = 200
        self.deliveries: list[Delivery] = []
        self._arrived = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{version}/track", self._track)
        app.router.add_post("/QuickPulseService.svc/{call}", self._nobody_watches)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def connection_string(self) -> str:
        """The value for APPLICATIONINSIGHTS_CONNECTION_STRING."""
        here = f"http://127.0.0.1:{self._port}"
        return f"InstrumentationKey={INSTRUMENTATION_KEY};IngestionEndpoint={here};LiveEndpoint={here}"

    @property
    def envelopes(self) -> list[Envelope]:
        """All that has arrived, in its order."""
        return [envelope for delivery in self.deliveries for envelope in delivery.envelopes]

    @property
    def json_bytes(self) -> int:
        """Bytes of JSON in all that has arrived, which is what the workspace's size is near to."""
        return sum(delivery.json_bytes for delivery in self.deliveries)

    def forget(self) -> None:
        """Drop what has arrived so far."""
        self.deliveries.clear()

    async def until(self, enough: Callable[[list[Envelope]], bool]) -> list[Envelope]:
        """Wait until `enough` is true of all that has arrived, and return it.

        Raises:
            TimeoutError: It was not within `WATCHDOG_S` seconds.
        """
        async with asyncio.timeout(WATCHDOG_S), self._arrived:
            await self._arrived.wait_for(lambda: enough(self.envelopes))
        return self.envelopes

    async def _track(self, request: web.Request) -> web.Response:
        # aiohttp has decompressed it already where the header says gzip.
        body = await request.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        envelopes = json.loads(body)
        if self.status == 200:
            async with self._arrived:
                self.deliveries.append(Delivery(request.content_length or len(body), len(body), tuple(envelopes)))
                self._arrived.notify_all()
        accepted = len(envelopes) if self.status == 200 else 0
        answer = {"itemsReceived": len(envelopes), "itemsAccepted": accepted, "errors": []}
        return web.json_response(answer, status=self.status)

    async def _nobody_watches(self, request: web.Request) -> web.Response:
        return web.Response(headers={"x-ms-qps-subscribed": "false"})
