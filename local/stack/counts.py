"""Counts of the outboxes of a running stack."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import aiohttp
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.supervisor import Stack
from outbox_relay.emulators.functions.feed import ChangeFeed
from outbox_relay.emulators.functions.leases import Lease
from relay.config.settings import Settings

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
    """Counts in all outboxes of a stack, and of what its streams have set aside."""

    async def take(self) -> Counted:
        """Count once. Raises OSError, or aiohttp's or the SDK's errors, if a part does not answer."""

    async def close(self) -> None:
        """Close every connection."""


class CosmosCounts:
    """Cosmos DB's counters, those of the Functions hosts, and the leases."""

    def __init__(
        self, stack: Stack, streams: Sequence[Settings], http: aiohttp.ClientSession, cosmos: CosmosClient
    ) -> None:
        self._stack = stack
        self._streams = streams
        self._http = http
        self._cosmos = cosmos

    @classmethod
    async def open(cls, stack: Stack, streams: Sequence[Settings], http: aiohttp.ClientSession) -> Self:
        """Connect to the Cosmos DB of a stack with these streams; `http` is for the admin ports."""
        cosmos = CosmosClient.from_connection_string(stack.settings["COSMOS"])
        await cosmos.__aenter__()
        return cls(stack, streams, http, cosmos)

    async def take(self) -> Counted:
        """Count once. Raises OSError, or aiohttp's or the SDK's errors, if a part does not answer."""
        counts = await admin_get(self._http, self._stack.outbox.details["port"], "counts")
        outboxes = {(each.in_cosmos.database, each.in_cosmos.container) for each in self._streams}
        ports = [host.details["port"] for host in self._stack.hosts]
        statuses = [await admin_get(self._http, port, "status") for port in ports]
        return Counted(
            documents=sum(counts[database][container] for database, container in outboxes),
            quarantined=sum([await self._quarantined(each) for each in self._streams]),
            failures=sum(function["failures"] for status in statuses for function in status["functions"]),
            lag_s=max(
                [lag_s for each in self._streams if (lag_s := await self._lag_s(each)) is not None], default=None
            ),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._cosmos.close()

    def _container(self, stream: Settings, name: str) -> ContainerProxy:
        return self._cosmos.get_database_client(stream.in_cosmos.database).get_container_client(name)

    async def _quarantined(self, stream: Settings) -> int:
        quarantine = self._container(stream, stream.in_cosmos.quarantine_container)
        counts: Any = [count async for count in quarantine.query_items(_QUARANTINED)]
        return sum(counts)

    async def _lag_s(self, stream: Settings) -> float | None:
        # A lease is named after the stream's prefix and the account's host.
        beginning = (
            f"{stream.in_cosmos.lease_prefix}{urlsplit(self._cosmos.client_connection.url_connection).hostname}_"
        )
        found = self._container(stream, stream.in_cosmos.lease_container).query_items(_LEASES)
        leases = [Lease.from_document(each) async for each in found if each["id"].startswith(beginning)]
        if not leases:
            return None
        data = self._container(stream, stream.in_cosmos.container)
        feed = ChangeFeed(data, start_from="Beginning", max_items=1)
        pages = [await feed.read(lease.partition, lease.continuation) for lease in leases]
        waiting = [document["_ts"] for page in pages for document in page.documents]
        return max(0.0, time.time() - min(waiting)) if waiting else 0.0


async def admin_get(http: aiohttp.ClientSession, port: int, name: str) -> Any:
    """Return a part's answer to `GET /admin/name`. Raises aiohttp's errors."""
    async with http.get(f"http://127.0.0.1:{port}/admin/{name}") as response:
        response.raise_for_status()
        return await response.json()
