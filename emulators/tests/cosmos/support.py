"""What several tests of the local Cosmos DB use."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote

import aiohttp
from azure.cosmos.aio import ContainerProxy
from yarl import URL

MakeContainer = Callable[..., Awaitable[ContainerProxy]]


@dataclass
class TurnableClock:
    """Time that passes only when a test says so."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str
    content: bytes = b""

    @property
    def body(self) -> Any:
        return json.loads(self.text)


class RawClient:
    """Signed requests by hand, for what the SDK would never send.

    As the SDK does, it remembers the session tokens that it was given, unless told to be a stranger each time.
    """

    def __init__(
        self, session: aiohttp.ClientSession, endpoint: str, key: str, *, is_stranger: bool = False
    ) -> None:
        self._session = session
        self._endpoint = endpoint.rstrip("/")
        self._key = base64.b64decode(key)
        self._is_stranger = is_stranger
        self._tokens: dict[tuple[str, ...], dict[str, str]] = {}

    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        sign: bool = True,
        encoded: bool = False,
    ) -> Answer:
        """`encoded` says that the path is percent-encoded already, and goes out as it is."""
        date = formatdate(usegmt=True)
        container = tuple(path.strip("/").split("/")[:4])
        tokens = self._tokens.setdefault(container, {})
        known = {"x-ms-session-token": ",".join(tokens.values())} if tokens and not self._is_stranger else {}
        sent = {"x-ms-date": date, "x-ms-version": "2020-07-15", **known, **(headers or {})}
        if sign:
            sent["authorization"] = self._signature(method, unquote(path) if encoded else path, date)
        content = body if isinstance(body, bytes) or body is None else str(body).encode()
        url = URL(self._endpoint + path, encoded=encoded)
        async with self._session.request(method, url, headers=sent, data=content) as response:
            if token := response.headers.get("x-ms-session-token"):
                tokens.update({each.partition(":")[0]: each for each in token.split(",")})
            content = await response.read()
            return Answer(response.status, response.headers, content.decode("utf-8", "replace"), content)

    def _signature(self, method: str, path: str, date: str) -> str:
        segments = [segment for segment in path.split("/") if segment]
        kind = segments[-1] if len(segments) % 2 else (segments[-2] if segments else "")
        link = "/".join(segments[:-1] if len(segments) % 2 else segments)
        text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        return quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")


class CosmosProcess:
    """The Cosmos DB part as a process of its own, killed in the end if it still runs."""

    def __init__(self, process: asyncio.subprocess.Process, details: dict[str, Any]) -> None:
        self._process = process
        self.details = details

    @classmethod
    @asynccontextmanager
    async def start(cls, *arguments: str) -> AsyncIterator[CosmosProcess]:
        process = await cls._spawn(*arguments)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(20):
                line = (await process.stdout.readline()).decode()
            assert line.startswith("READY "), line
            yield cls(process, json.loads(line.removeprefix("READY ")))
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @classmethod
    async def run_to_end(cls, *arguments: str) -> tuple[int, str]:
        process = await cls._spawn(*arguments)
        async with asyncio.timeout(20):
            _, errors = await process.communicate()
        assert process.returncode is not None
        return process.returncode, errors.decode()

    @classmethod
    async def _spawn(cls, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "outbox_emulators", "cosmos", "--port", "0"),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    def kill(self) -> None:
        self._process.kill()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ended(self) -> int:
        async with asyncio.timeout(20):
            return await self._process.wait()


class FaultClient:
    """The admin port's faults, as a campaign uses them."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str) -> None:
        self._session = session
        self._faults = endpoint.rstrip("/") + "/admin/faults"

    async def add(self, kind: str, operation: str = "any", container: str | None = None, **options: Any) -> int:
        """Begin a fault, for one request unless told otherwise; its id."""
        limits = {} if options.keys() & {"count", "for_ms"} else {"count": 1}
        match = {"container": container, "operation": operation}
        answer = await self.send("POST", body={"kind": kind, "match": match, **limits, **options})
        assert answer.status == 200, answer.text
        return int(answer.body["id"])

    async def get(self, fault_id: int) -> dict[str, Any]:
        return dict((await self.send("GET", f"/{fault_id}")).body)

    async def applied(self, fault_id: int) -> int:
        return int((await self.get(fault_id))["applied"])

    async def remove(self, fault_id: int) -> dict[str, Any]:
        return dict((await self.send("DELETE", f"/{fault_id}")).body)

    async def send(self, method: str, path: str = "", body: Any = None) -> Answer:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        async with self._session.request(method, self._faults + path, data=content) as response:
            return Answer(response.status, response.headers, await response.text())
