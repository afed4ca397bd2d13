"""A gateway in front of the local Cosmos DB, behind which one replica lags and answers are lost.

What the service may do under session consistency: answer a read from any replica that is as far as the session
token of the request, and from one that has not seen a write where the token does not ask for it
(https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency). Writes, conditional ones too,
are decided by the primary. Refusals with 404, 409 and 412 carry a session token as successes do: the .NET SDK
takes it over (GatewayStoreModel.CaptureSessionTokenAndHandleSplitAsync in azure-cosmos-dotnet-v3).
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

from outbox_emulators.testing import Answer, RawClient

_TOKEN = "x-ms-session-token"
_KEY = "x-ms-documentdb-partitionkey"
_OF_THE_HOP = frozenset({"connection", "content-length", "content-encoding", "transfer-encoding"})
_TELL_A_TOKEN = frozenset({404, 409, 412})


class Lost(StrEnum):
    """How the answer to a batch that was carried out is lost."""

    DROPPED = "dropped"
    """The connection breaks: the SDK sends the batch again, and meets its own first attempt."""
    TIMED_OUT = "timed out"
    """408, which the SDK reports."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A session token, `RANGE:-1#LSN`."""

    range: str
    lsn: int

    @classmethod
    def of(cls, text: str) -> _Token:
        place, _, lsn = text.partition(":-1#")
        return cls(place, int(lsn))

    def is_met_by(self, headers: Mapping[str, str]) -> bool:
        """Whether a request asks for what was written under this token."""
        asked = [_Token.of(part) for part in headers.get(_TOKEN, "").split(",") if part]
        return any(token.range == self.range and token.lsn >= self.lsn for token in asked)

    def __str__(self) -> str:
        return f"{self.range}:-1#{self.lsn}"


class LaggingGateway:
    """Forwards to `endpoint`. From `lag()` on, documents that are written are read as they were before, unless the
    session token asks for more; `lose()` loses the answers to the batches that follow.
    """

    def __init__(self, endpoint: str, key: str) -> None:
        self._target = endpoint.rstrip("/")
        self._key = key
        self._before: dict[tuple[str, str], Answer] = {}
        # By the key of a logical partition, as requests have it: that of its physical partition.
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
        app.router.add_route("*", "/{path:.*}", self._answer)
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

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, key, body = request.rel_url.raw_path.rstrip("/"), request.headers.get(_KEY, ""), await request.read()
        stale = self._before.get((path, key))
        if request.method == "GET" and stale is not None and not self._tokens[key].is_met_by(request.headers):
            self.stale_reads += 1
            return web.Response(status=stale.status, text=stale.text, headers=_passed_on(stale.headers))
        is_batch = "x-ms-cosmos-is-batch-request" in request.headers
        if is_batch and self._lagging:
            await self._remember(path, key, body)
        reply = await self._forward(request, body)
        if is_batch and self._losses:
            match self._losses.pop(0):
                case Lost.DROPPED:
                    assert request.transport is not None
                    request.transport.abort()
                case Lost.TIMED_OUT:
                    return web.Response(status=408, text='{"code": "RequestTimeout", "message": ""}')
        return reply

    async def _remember(self, path: str, key: str, body: bytes) -> None:
        """Keep what the documents of a batch are before it is carried out."""
        for operation in json.loads(body):
            document = f"{path}/{quote(operation.get('id') or operation['resourceBody']['id'])}"
            if (document, key) not in self._before:
                self._before[document, key] = await self._raw.send("GET", document, headers={_KEY: key})

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        url = URL(self._target + request.raw_path, encoded=True)
        sent = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THE_HOP}
        async with self._session.request(request.method, url, headers=sent, data=body) as response:
            headers: dict[str, Any] = _passed_on(response.headers)
            key = request.headers.get(_KEY, "")
            if _TOKEN in headers:
                self._tokens[key] = _Token.of(headers[_TOKEN])
            elif response.status in _TELL_A_TOKEN and key in self._tokens:
                headers[_TOKEN] = str(self._tokens[key])
            # The account names the address that a client is to use from then on.
            answer = (await response.read()).replace(self._target.encode(), self.endpoint.rstrip("/").encode())
            return web.Response(status=response.status, body=answer, headers=headers)


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in (*_OF_THE_HOP, "content-type")}
