"""The stack's readiness probe: one address for all parts."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from local.stack.environment import Source
from local.stack.parts import Part
from local.stack.supervisor import Stack

_PART_TIMEOUT_S = 2.0


class Probe:
    """Answers `GET /ready`: 200 when every part can be used, else 503; the body names each.

    An emulator answers its health check, PostgreSQL and Azurite accept a connection, and a worker runs.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PART_TIMEOUT_S))
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def ready(self, request: web.Request) -> web.Response:
        """Answer whether each part of the stack is ready."""
        stack = self._stack
        checks = {
            stack.outbox.name: self._usable(stack.outbox),
            **{
                each.name: self._healthy(each.details["admin_port"])
                for each in (stack.servicebus, *stack.namespaces.values())
            },
            **({} if stack.blobs is None else {stack.blobs.name: self._accepts(stack.blobs)}),
            **{host.name: self._usable(host) for host in stack.hosts},
        }
        answers = await asyncio.gather(*checks.values())
        parts = dict(zip(checks, answers, strict=True))
        return web.json_response({"parts": parts}, status=200 if all(answers) else 503)

    async def _usable(self, part: Part) -> bool:
        if self._stack.source is not Source.SQL:
            return await self._healthy(part.details["port"])
        if part is not self._stack.outbox:
            return not part.ended
        return await self._accepts(part)

    async def _accepts(self, part: Part) -> bool:
        """Return True if the part accepts a connection."""
        try:
            async with asyncio.timeout(_PART_TIMEOUT_S):
                _, writer = await asyncio.open_connection("127.0.0.1", part.details["port"])
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def _healthy(self, port: int) -> bool:
        try:
            async with self._session.get(f"http://127.0.0.1:{port}/health") as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False
