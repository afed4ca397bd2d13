"""The draining process as the soak sees it."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self

import aiohttp

from local.soak.drain import SUBSCRIPTION
from local.stack.environment import TOPIC
from local.stack.parts import ROOT
from outbox_emulators.process import READY

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.25


class SubscriberEnded(Exception):
    """The draining process did not start, or ended by itself."""


class Subscriber:
    """`local.soak.drain` as a child; it ends with this process, whose pipe it reads."""

    def __init__(self, connection_string: str, admin_port: int, *, receivers: int) -> None:
        self._connection_string = connection_string
        self._entities_url = f"http://127.0.0.1:{admin_port}/admin/entities"
        self._receivers = receivers

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "local.soak.drain", "--receivers", str(self._receivers)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._connection_string.encode() + b"\n")
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                line = await self._process.stdout.readline()
            if not line.startswith(READY.encode()):
                raise SubscriberEnded("the draining process did not start")
        except BaseException:
            await self._end()
            raise
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._http.close()
        await self._end()

    async def until_waiting(self, at_most: int, *, within_s: float) -> None:
        """Wait until the broker holds no more than `at_most` messages; TimeoutError when it does not in time.

        Raises:
            SubscriberEnded: Nobody takes the messages any more.
        """
        async with asyncio.timeout(within_s):
            while await self._waiting() > at_most:
                if self._process.returncode is not None:
                    raise SubscriberEnded(f"the draining process ended with code {self._process.returncode}")
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _waiting(self) -> int:
        async with self._http.get(self._entities_url) as response:
            counts = await response.json()
        return int(counts[f"{TOPIC}/Subscriptions/{SUBSCRIPTION}"]["active"])

    async def _end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
