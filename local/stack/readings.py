"""Takes readings of a running stack, from its admin ports and from its outbox."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import aiohttp

from local.stack.counts import CosmosCounts, Counts, admin_get
from local.stack.environment import TOPIC, Source
from local.stack.rates import Reading
from local.stack.supervisor import Stack

_TIMEOUT_S = 5.0


class Readings:
    """Reads the counters of a stack's parts; use it as an async context manager."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._counts: Counts

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        if self._stack.source is Source.SQL:
            # Only then does it need the database's driver.
            from local.database.counts import SqlCounts

            self._counts = SqlCounts(self._stack.settings["SQL"])
        else:
            self._counts = await CosmosCounts.open(self._stack, self._http)
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._counts.close()
        await self._http.close()

    async def take(self) -> Reading:
        """Take one reading. Raises OSError, or aiohttp's or the SDK's errors, if a part does not answer."""
        entities = await admin_get(self._http, self._stack.servicebus.details["admin_port"], "entities")
        topic = entities.get(TOPIC, {"accepted": 0, "duplicates_dropped": 0})
        counted = await self._counts.take()
        return Reading(
            at=time.monotonic(),
            documents=counted.documents,
            relayed=topic["accepted"] - topic["duplicates_dropped"],
            quarantined=counted.quarantined,
            dead_lettered=sum(entity.get("dead_letter", 0) for entity in entities.values()),
            failures=counted.failures,
            lag_s=counted.lag_s,
        )
