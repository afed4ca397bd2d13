"""The timeline of an outbox container: a document of the lease container, which no host takes for a lease."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import ResourceNotFoundError

from relay.backends.cosmos.containers import Call, Containers, explaining
from relay.core.errors import RelayError, RulesError
from relay.routes.generations import Timeline
from relay.routes.rulebook import StoredTimeline, TimelineChanged

_EXISTS, _GONE, _OTHER_ETAG = 409, 404, 412


class CosmosTimelines:
    """A document of the lease container; `rulebook.Timelines` says what each method does.

    Its id has the account's host and the outbox container's resource id, as those of leases have: a container that
    was deleted and created again has neither the leases nor the timeline of the one before. The ids of leases have
    two points behind the resource id, by which they are found, and this one has none.
    """

    def __init__(self, containers: Containers, outbox: str, leases: str) -> None:
        """Prepare the store; nothing is read yet.

        Args:
            containers: The connection to use; it is closed with the store.
            outbox: The name of the outbox container.
            leases: The name of the lease container, whose partition key is /id.
        """
        self._containers = containers
        self._outbox = outbox
        self._leases = leases

    async def read(self) -> StoredTimeline | None:
        async with self._call() as call:
            identifier = await self._id(call)
            try:
                item = await call.container(self._leases).read_item(identifier, partition_key=identifier)
            except ResourceNotFoundError:
                return None
        return StoredTimeline(Timeline.from_item(item), item["_etag"])

    async def create(self, timeline: Timeline, /) -> None:
        async with self._call(_EXISTS) as call:
            item = timeline.item() | {"id": await self._id(call)}
            await call.container(self._leases).create_item(item)

    async def replace(self, timeline: Timeline, etag: str, /) -> None:
        async with self._call(_GONE, _OTHER_ETAG) as call:
            item = timeline.item() | {"id": await self._id(call)}
            await call.container(self._leases).replace_item(
                item["id"], item, etag=etag, match_condition=MatchConditions.IfNotModified
            )

    async def close(self) -> None:
        await self._containers.close()

    async def _id(self, call: Call) -> str:
        outbox = call.container(self._outbox)
        with explaining(self._outbox, lambda _: RulesError):
            definition = await outbox.read()
        host = urlsplit(outbox.client_connection.url_connection).hostname
        return f"relay-rules.{host}.{definition['_rid']}"

    @asynccontextmanager
    async def _call(self, *statuses: int) -> AsyncIterator[Call]:
        """One call; errors with one of the statuses are raised as TimelineChanged, others as RulesError."""

        def kind(error: Exception) -> type[RelayError]:
            return TimelineChanged if getattr(error, "status_code", None) in statuses else RulesError

        with explaining(self._leases, kind, "that it has the partition key /id"):
            async with self._containers.call() as call:
                yield call
