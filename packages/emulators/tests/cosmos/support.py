"""Helpers of several tests of the Cosmos DB emulator."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stderr
from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.program import PROGRAM
from tests.support.watchdog import WATCHDOG_S

MakeContainer = Callable[..., Awaitable[ContainerProxy]]


async def cannot_start(*arguments: str) -> tuple[int, str]:
    """The exit code and the errors of the command, run here, with arguments with which it cannot serve."""
    with redirect_stderr(io.StringIO()) as errors:
        try:
            async with asyncio.timeout(WATCHDOG_S):
                call = PROGRAM.parse(["cosmos", "--port", "0", *arguments])
                code = await call.function(**call.options)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, errors.getvalue()


class CosmosProcess:
    """The Cosmos DB emulator as a process, killed after the test if it still runs."""

    def __init__(self, process: asyncio.subprocess.Process, details: dict[str, Any]) -> None:
        self._process = process
        self.details = details

    @classmethod
    @asynccontextmanager
    async def start(cls, *arguments: str) -> AsyncIterator[CosmosProcess]:
        process = await cls._spawn(*arguments)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(WATCHDOG_S):
                line = (await process.stdout.readline()).decode()
            assert line.startswith("READY "), line
            yield cls(process, json.loads(line.removeprefix("READY ")))
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @classmethod
    async def _spawn(cls, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "outbox_relay.emulators", "cosmos", "--port", "0"),
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
        async with asyncio.timeout(WATCHDOG_S):
            return await self._process.wait()
