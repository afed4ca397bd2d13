"""Counts of the outbox of a running stack."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol, Self

import aiohttp
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from local.stack.supervisor import Stack
from outbox_emulators.functions.feed import ChangeFeed
from outbox_emulators.functions.leases import Lease

# The marker document among the leases has no token.
_LEASES = "SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)"

_QUARANTINED = "SELECT VALUE COUNT(1) FROM c WHERE c.type = 'quarantinedEvent'"


@dataclass(frozen=True, slots=True)
class Counted:
    """The attributes of the same names of `rates.Reading`."""

    documents: int
    quarantined: int
    failures: int | None
    lag_s: float | None


class Counts(Protocol):
    """Counts in the outbox of one source."""

    async def take(self) -> Counted:
        """Count once. Raises OSError, or aiohttp's or the SDK's errors, if a part does not answer."""

    async def close(self) -> None:
        """Close every connection."""


class CosmosCounts:
    """Cosmos DB's counters, those of the Functions hosts, and the leases."""

    def __init__(self, stack: Stack, http: aiohttp.ClientSession, cosmos: CosmosClient) -> None:
        self._stack = stack
        self._http = http
        self._cosmos = cosmos
        database = cosmos.get_database_client(DATABASE)
        self._data = database.get_container_client("data")
        self._leases = database.get_container_client("leases")
        self._quarantine = database.get_container_client("quarantine")

    @classmethod
    async def open(cls, stack: Stack, http: aiohttp.ClientSession) -> Self:
        """Connect to the stack's Cosmos DB; `http` is for the admin ports."""
        cosmos = CosmosClient.from_connection_string(stack.settings["COSMOS"])
        await cosmos.__aenter__()
        return cls(stack, http, cosmos)

    async def take(self) -> Counted:
        """Count once. Raises OSError, or aiohttp's or the SDK's errors, if a part does not answer."""
        counts = (await admin_get(self._http, self._stack.outbox.details["port"], "counts"))[DATABASE]
        ports = [host.details["port"] for host in self._stack.hosts]
        statuses = [await admin_get(self._http, port, "status") for port in ports]
        return Counted(
            documents=counts["data"],
            quarantined=await self._quarantined(),
            failures=sum(function["failures"] for status in statuses for function in status["functions"]),
            lag_s=await self._lag_s(),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._cosmos.close()

    async def _quarantined(self) -> int:
        counts: Any = [count async for count in self._quarantine.query_items(_QUARANTINED)]
        return sum(counts)

    async def _lag_s(self) -> float | None:
        leases = [Lease.from_document(document) async for document in self._leases.query_items(_LEASES)]
        if not leases:
            return None
        feed = ChangeFeed(self._data, start_from="Beginning", max_items=1)
        pages = [await feed.read(lease.partition, lease.continuation) for lease in leases]
        waiting = [document["_ts"] for page in pages for document in page.documents]
        return max(0.0, time.time() - min(waiting)) if waiting else 0.0


async def admin_get(http: aiohttp.ClientSession, port: int, name: str) -> Any:
    """Return a part's answer to `GET /admin/name`. Raises aiohttp's errors."""
    async with http.get(f"http://127.0.0.1:{port}/admin/{name}") as response:
        response.raise_for_status()
        return await response.json()
