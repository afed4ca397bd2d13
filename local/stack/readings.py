"""Takes readings of a running stack, from its admin ports and from its leases."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

import aiohttp
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE, TOPIC
from local.stack.rates import Reading
from local.stack.supervisor import Stack
from outbox_emulators.functions.feed import ChangeFeed
from outbox_emulators.functions.leases import Lease

_TIMEOUT_S = 5.0

# The marker document among the leases has no token.
_LEASES = "SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)"


class Readings:
    """Reads the counters of a stack's parts; use it as an async context manager."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._data: ContainerProxy
        self._leases: ContainerProxy

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        self._cosmos = CosmosClient.from_connection_string(self._stack.settings["COSMOS"])
        await self._cosmos.__aenter__()
        database = self._cosmos.get_database_client(DATABASE)
        self._data = database.get_container_client("data")
        self._leases = database.get_container_client("leases")
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._cosmos.close()
        await self._http.close()

    async def take(self) -> Reading:
        """One reading. Raises aiohttp's or the SDK's errors if a part does not answer."""
        stack = self._stack
        counts = (await self._get(stack.outbox.details["port"], "counts"))[DATABASE]
        entities = await self._get(stack.servicebus.details["admin_port"], "entities")
        statuses = [await self._get(host.details["port"], "status") for host in stack.hosts]
        topic = entities.get(TOPIC, {"accepted": 0, "duplicates_dropped": 0})
        return Reading(
            at=time.monotonic(),
            documents=counts["data"],
            relayed=topic["accepted"] - topic["duplicates_dropped"],
            quarantined=counts["quarantine"],
            dead_lettered=sum(entity.get("dead_letter", 0) for entity in entities.values()),
            failures=sum(function["failures"] for status in statuses for function in status["functions"]),
            lag_s=await self._lag_s(),
        )

    async def _lag_s(self) -> float | None:
        leases = [Lease.from_document(document) async for document in self._leases.query_items(_LEASES)]
        if not leases:
            return None
        feed = ChangeFeed(self._data, start_from="Beginning", max_items=1)
        pages = [await feed.read(lease.partition, lease.continuation) for lease in leases]
        waiting = [document["_ts"] for page in pages for document in page.documents]
        return max(0.0, time.time() - min(waiting)) if waiting else 0.0

    async def _get(self, port: int, name: str) -> Any:
        async with self._http.get(f"http://127.0.0.1:{port}/admin/{name}") as response:
            response.raise_for_status()
            return await response.json()
