"""The draining process, as the soak sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from local.soak.drain import SUBSCRIPTION
from local.stack.environment import TOPIC
from local.stack.parts import Part
from local.stack.supervisor import Stack

_POLL_EVERY_S = 0.25


class Subscriber:
    """`local.soak.drain` as a child process."""

    def __init__(self, part: Part, http: aiohttp.ClientSession, admin_port: int) -> None:
        self._part = part
        self._http = http
        self._entities_url = f"http://127.0.0.1:{admin_port}/admin/entities"

    async def until_waiting(self, at_most: int, *, within_s: float) -> None:
        """Wait until the broker holds at most `at_most` messages.

        Raises:
            PartFailed: The draining process ended.
            TimeoutError: It is too slow.
        """
        async with asyncio.timeout(within_s):
            while await self._waiting() > at_most:
                if self._part.ended:
                    raise self._part.failure("ended unexpectedly")
                await asyncio.sleep(_POLL_EVERY_S)

    async def kept(self) -> int:
        """Return the number of messages that the topic has accepted so far, less the duplicates it dropped."""
        counts = (await self._counts())[TOPIC]
        return int(counts["accepted"]) - int(counts["duplicates_dropped"])

    async def _waiting(self) -> int:
        return int((await self._counts())[f"{TOPIC}/Subscriptions/{SUBSCRIPTION}"]["active"])

    async def _counts(self) -> dict[str, Any]:
        async with self._http.get(self._entities_url) as response:
            counts: dict[str, Any] = await response.json()
        return counts


@asynccontextmanager
async def subscriber(stack: Stack, logs: Path, *, receivers: int) -> AsyncIterator[Subscriber]:
    """A subscriber that receives from `receivers` sessions at a time."""
    part = await Part.start(
        *("subscriber", "local.soak.drain", "--receivers", str(receivers)),
        log=logs / "subscriber.log",
        environment={"SERVICEBUS": stack.settings["SERVICEBUS"]},
    )
    try:
        async with aiohttp.ClientSession() as http:
            yield Subscriber(part, http, int(stack.servicebus.details["admin_port"]))
    finally:
        await part.stop()
