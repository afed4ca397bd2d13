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
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from azure.cosmos.aio import ContainerProxy

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
    body: Any


class RawClient:
    """Signed requests by hand, for what the SDK would never send."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str, key: str) -> None:
        self._session = session
        self._endpoint = endpoint.rstrip("/")
        self._key = base64.b64decode(key)

    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        sign: bool = True,
    ) -> Answer:
        date = formatdate(usegmt=True)
        sent = {"x-ms-date": date, "x-ms-version": "2020-07-15", **(headers or {})}
        if sign:
            sent["authorization"] = self._signature(method, path, date)
        content = body if isinstance(body, bytes) or body is None else str(body).encode()
        async with self._session.request(method, self._endpoint + path, headers=sent, data=content) as response:
            is_json = response.content_type == "application/json"
            answer = await response.json() if is_json else await response.text()
            return Answer(response.status, response.headers, answer)

    def _signature(self, method: str, path: str, date: str) -> str:
        segments = [segment for segment in path.split("/") if segment]
        kind = segments[-1] if len(segments) % 2 else (segments[-2] if segments else "")
        link = "/".join(segments[:-1] if len(segments) % 2 else segments)
        text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        return quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")


class CosmosProcess:
    """The Cosmos DB part as a process of its own, killed in the end if it still runs."""

    # Straight to the part's own command, so that these tests need nothing of the rest of the stack.
    PROGRAM = (
        "import argparse, asyncio, sys; from local.cosmos import command; "
        "parser = argparse.ArgumentParser(); command.add_arguments(parser); "
        "sys.exit(asyncio.run(command.run(parser.parse_args())))"
    )

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
            "-c",
            cls.PROGRAM,
            "--port",
            "0",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[4],
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
