"""A trigger's leases, as the local Functions host writes them, moved by the test instead of by a host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.feed import ChangeFeed, PartitionGone
from outbox_relay.emulators.functions.leases import Lease, LeaseStore


def _nobody_else_initializes() -> None:
    raise AssertionError("the initialization lock is held by somebody else")


class TriggerLeases:
    """The leases of one trigger on an outbox, in the container `leases`."""

    def __init__(
        self,
        client: CosmosClient,
        *,
        outbox: str = "data",
        prefix: str = "",
        owner: str = "host",
        max_items: int | None = None,
        edges: Edges | None = None,
    ) -> None:
        self._database = client.get_database_client(DATABASE)
        self.data = self._database.get_container_client(outbox)
        self.leases = self._database.get_container_client("leases")
        self._prefix = prefix
        self._owner = owner
        self._edges = edges or Edges(None)
        self.feed = ChangeFeed(self.data, start_from="Beginning", max_items=max_items)

    async def store(self) -> LeaseStore:
        """The store of the leases, which are created."""
        host = urlsplit(self.data.client_connection.url_connection).hostname
        rids = f"{(await self._database.read())['_rid']}_{(await self.data.read())['_rid']}"
        store = LeaseStore(
            self.leases,
            prefix=f"{self._prefix}{host}_{rids}",
            owner=self._owner,
            partitioned_by_id=True,
            edges=self._edges,
        )
        await store.initialize(
            self.feed.ranges, wait_s=0.1, stopping=asyncio.Event(), awaited=_nobody_else_initializes
        )
        return store

    async def reach(self, lsn: int) -> None:
        """Checkpoint each lease at an LSN, wherever its feed is."""
        store = await self.store()
        for lease in await store.all():
            await store.checkpoint(await store.acquire(lease), f'"{lsn}"')

    async def deliver(self, handle: Callable[[list[dict[str, Any]]], Awaitable[object]]) -> None:
        """Hand over all that is in the feed, page by page, and checkpoint each lease behind each page.

        A lease whose partition was split is divided first.
        """
        store = await self.store()
        waiting = await store.all()
        while waiting:
            lease = await store.acquire(waiting.pop())
            try:
                while (page := await self.feed.read(lease.partition, lease.continuation)).documents:
                    await handle(page.documents)
                    lease = await store.checkpoint(lease, str(page.continuation))
            except PartitionGone:
                children = lease.partition.successors(await self.feed.ranges())
                waiting += await store.divide(lease, children, lease.continuation)

    async def pass_all(self) -> list[Lease]:
        """Checkpoint each lease behind all that is in the feed now, as after invocations that succeeded."""
        store = await self.store()
        moved = []
        for lease in await store.all():
            acquired = await store.acquire(lease)
            continuation = acquired.continuation
            while (page := await self.feed.read(acquired.partition, continuation)).documents:
                continuation = page.continuation
            # Even an empty partition answers with a continuation.
            moved.append(await store.checkpoint(acquired, page.continuation or '"0"'))
        return moved
