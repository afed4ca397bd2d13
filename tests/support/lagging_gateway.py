"""A gateway in front of the local Cosmos DB that serves stale reads and loses responses.

Under session consistency, any replica that has reached the session token of a read may serve it, so a read without
a recent token may miss a write
(https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency). The primary decides writes,
including conditional ones. Error responses with 404, 409 and 412 carry a session token too, which the .NET SDK
keeps (GatewayStoreModel.CaptureSessionTokenAndHandleSplitAsync in azure-cosmos-dotnet-v3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from aiohttp import web
from yarl import URL

from outbox_relay.emulators.testing import Answer, RawClient

_TOKEN = "x-ms-session-token"
_KEY = "x-ms-documentdb-partitionkey"
_HOP_BY_HOP = frozenset({"connection", "content-length", "content-encoding", "transfer-encoding"})
_ERRORS_WITH_TOKEN = frozenset({404, 409, 412})


class Lost(StrEnum):
    """How the response to a batch that was applied is lost."""

    DROPPED = "dropped"
    """The connection breaks. The SDK retries the batch, which collides with its own first attempt."""
    TIMED_OUT = "timed out"
    """A 408, which the SDK reports."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A session token, `RANGE:-1#LSN`."""

    range: str
    lsn: int

    @classmethod
    def of(cls, text: str) -> _Token:
        key_range, _, lsn = text.partition(":-1#")
        return cls(key_range, int(lsn))

    def is_required_by(self, headers: Mapping[str, str]) -> bool:
        """Return True if a request must see what was written under this token."""
        required = [_Token.of(part) for part in headers.get(_TOKEN, "").split(",") if part]
        return any(token.range == self.range and token.lsn >= self.lsn for token in required)

    def __str__(self) -> str:
        return f"{self.range}:-1#{self.lsn}"


class LaggingGateway:
    """Forwards to `endpoint`. After `lag()`, reads return documents as they were before a later write, unless the
    session token requires the write. `lose()` loses the responses to the next batches.
    """

    def __init__(self, endpoint: str, key: str) -> None:
        self._target = endpoint.rstrip("/")
        self._key = key
        self._before: dict[tuple[str, str], Answer] = {}
        # By the partition key header of requests: the token of its physical partition.
        self._tokens: dict[str, _Token] = {}
        self._lagging = False
        self._losses: list[Lost] = []
        self.stale_reads = 0

    def lag(self) -> None:
        self._lagging = True

    def lose(self, *losses: Lost) -> None:
        self._losses += losses

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        self._raw = RawClient(self._session, self._target, self._key)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._respond)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.endpoint = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        path, key, body = request.rel_url.raw_path.rstrip("/"), request.headers.get(_KEY, ""), await request.read()
        stale = self._before.get((path, key))
        if request.method == "GET" and stale is not None and not self._tokens[key].is_required_by(request.headers):
            self.stale_reads += 1
            return web.Response(status=stale.status, text=stale.text, headers=_end_to_end(stale.headers))
        is_batch = "x-ms-cosmos-is-batch-request" in request.headers
        if is_batch and self._lagging:
            await self._keep_current(path, key, body)
        reply = await self._forward(request, body)
        if is_batch and self._losses:
            match self._losses.pop(0):
                case Lost.DROPPED:
                    assert request.transport is not None
                    request.transport.abort()
                case Lost.TIMED_OUT:
                    return web.Response(status=408, text='{"code": "RequestTimeout", "message": ""}')
        return reply

    async def _keep_current(self, path: str, key: str, body: bytes) -> None:
        """Keep the documents of a batch as they are before it is applied."""
        for operation in json.loads(body):
            document = f"{path}/{quote(operation.get('id') or operation['resourceBody']['id'])}"
            if (document, key) not in self._before:
                self._before[document, key] = await self._raw.send("GET", document, headers={_KEY: key})

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        url = URL(self._target + request.raw_path, encoded=True)
        sent = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        async with self._session.request(request.method, url, headers=sent, data=body) as response:
            headers: dict[str, Any] = _end_to_end(response.headers)
            key = request.headers.get(_KEY, "")
            if _TOKEN in headers:
                self._tokens[key] = _Token.of(headers[_TOKEN])
            elif response.status in _ERRORS_WITH_TOKEN and key in self._tokens:
                headers[_TOKEN] = str(self._tokens[key])
            # The account document names the endpoint that clients use from then on.
            content = (await response.read()).replace(self._target.encode(), self.endpoint.rstrip("/").encode())
            return web.Response(status=response.status, body=content, headers=headers)


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in (*_HOP_BY_HOP, "content-type")}
