"""Takes readings of a running stack, from its admin ports and from its outboxes."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import aiohttp

from local.stack.counts import CosmosCounts, Counts, admin_get
from local.stack.environment import Source
from local.stack.rates import Reading
from local.stack.supervisor import Stack
from relay.config.settings import SERVICEBUS

_TIMEOUT_S = 5.0


class Readings:
    """Reads the counters of a stack's parts; use it as an async context manager."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._streams = stack.streams
        self._counts: Counts

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        if self._stack.source is Source.SQL:
            # Only then does it need the database's driver.
            from local.database.counts import SqlCounts

            feeds = [feed for each in self._streams if (feed := each.feed) is not None]
            self._counts = SqlCounts(self._stack.settings["SQL"], feeds)
        else:
            self._counts = await CosmosCounts.open(self._stack, self._streams, self._http)
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
        parts = {SERVICEBUS: self._stack.servicebus, **self._stack.namespaces}
        entities = {
            name: await admin_get(self._http, each.details["admin_port"], "entities")
            for name, each in parts.items()
        }
        destinations = {(each.servicebus.setting, each.servicebus.entity) for each in self._streams}
        sent = [entities[setting][name] for setting, name in destinations if name in entities[setting]]
        counted = await self._counts.take()
        return Reading(
            at=time.monotonic(),
            documents=counted.documents,
            relayed=sum(each["accepted"] - each["duplicates_dropped"] for each in sent),
            quarantined=counted.quarantined,
            dead_lettered=sum(each.get("dead_letter", 0) for held in entities.values() for each in held.values()),
            failures=counted.failures,
            lag_s=counted.lag_s,
        )
