"""An outbox in Cosmos DB, as `outbox.Outbox` promises it, and as `outbox.Canary` does.

Reading it needs an identity that may read the outbox container and the lease container: the role Cosmos DB
Built-in Data Reader. Only the canary writes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from outbox_relay.operator.backends.cosmos.scan import undeliverable
from outbox_relay.operator.backends.rules import StoredRules
from relay.backends.cosmos.containers import Containers, explaining, parameters
from relay.backends.cosmos.feed import (
    CosmosReading,
    Feed,
    behind,
    brief,
    committed_of,
    documents_by,
    expression,
    feed_start,
    integers_of_any_length,
    numbered,
    of_any_type,
    of_type,
)
from relay.backends.cosmos.leases import LeasePosition, Positions, read_positions
from relay.backends.cosmos.source import event_of, select
from relay.backends.findings import Finding
from relay.backends.outbox import CLEAN_UP_S, Committed, Found, NextPage, Position, Range, Reading
from relay.config.settings import Settings
from relay.core import jsontext
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.errors import ServiceError
from relay.core.events import Event, EventName, Rejected
from relay.core.place import Place, PlaceInFeed
from relay.routes.mapping import PLAIN, Fields
from relay.routes.pointers import Pointer

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

# The change feed processor holds its lock for 30 s at most. Clocks may differ, and expiry may be late.
_STALE_LOCK_S = 60.0


async def stale_locks(subject: str, leases: ContainerProxy) -> list[Finding]:
    """Find the lease locks that nobody can hold any more.

    They are documents `<prefix>.lock`, as the change feed processor names them.

    `subject` names the lease container. Raises AzureError or OSError.
    """
    rows = leases.query_items("SELECT c.id, c._ts FROM c WHERE ENDSWITH(c.id, '.lock')")
    now = time.time()
    return [
        Finding.error(
            f"{subject} has the lock {row['id']!r}, {now - row['_ts']:.0f} s old: its host was killed while "
            "starting, and every other host waits for the lock without logging anything",
            "Delete that document, then set time to live to on without a default (defaultTtl: -1).",
        )
        async for row in rows
        if now - row["_ts"] > _STALE_LOCK_S
    ]


# The ids of one query, whose text may have 512 KB.
_IDS = 100

# The trigger's leaseExpirationInterval, unless the app sets another.
_LEASE_S = 60.0


class CosmosOutbox:
    """Reads the change feed and the leases; `outbox.Outbox` says what each method does.

    A look at a feed without news costs about 1 RU for each physical partition, and the leases about 3 RU.
    """

    def __init__(
        self, settings: Settings, rules: StoredRules | None = None, *, from_beginning: bool = True
    ) -> None:
        """Create the outbox.

        Args:
            settings: Those of the stream.
            rules: Its rules by the time of a commit, by which `news` and `of_key` go, to close with it; None where
                the rules of the settings count for all events.
            from_beginning: False to begin with the news behind the relay's leases.
        """
        self._settings = settings
        self._place = settings.in_cosmos
        self._rules = rules
        self._from_beginning = from_beginning
        self._containers = Containers(settings.in_cosmos)
        # The feed has its own client.
        self._feed_containers = Containers(settings.in_cosmos)
        self._feed: Feed | None = None
        # The relay's own leases as they were read last, and all that count for an event, read once.
        self._own: Positions | None = None
        self._checkpoints: Positions | None = None
        self._passed_of_key: dict[str, list[tuple[PlaceInFeed, str]]] = {}

    async def news(self, limit: int, /) -> Sequence[Committed]:
        """Return the new events. After a split, the children are read on from where their parent was read."""
        positions = self._own or await self._read_own()
        with explaining(self._place.container):
            if self._feed is None:
                container = await self._feed_containers.open(self._place.container)
                rules = None if self._rules is None else self._rules.until
                self._feed = Feed(container, self._settings.selection, rules, from_beginning=self._from_beginning)
            return await self._feed.next(limit, positions)

    def given_elsewhere(self) -> Collection[EventName]:
        """Return none: a document has the time of its commit."""
        return ()

    async def positions(self) -> Sequence[Position]:
        return [_position(lease) for lease in (await self._read_own()).leases]

    async def obstacles(self) -> Sequence[Finding]:
        """Return the findings about locks in the lease container that nobody holds any more."""
        name = self._place.lease_container
        with explaining(name):
            return await stale_locks(f"COSMOS_LEASE_CONTAINER '{name}'", await self._containers.open(name))

    async def next_pages(self, limit: int, /) -> Sequence[NextPage]:
        """Return one page of the service for each lease, as a host reads it: it has 4 MB at most."""
        positions = await self._read_own()
        container = await self._container()
        found = []
        with explaining(container.id), integers_of_any_length():
            for lease in positions.leases:
                documents: list[StoredDocument] = []
                async for page in behind(container, lease, limit).by_page():
                    documents = [document async for document in page if not lease.has_passed(document)]
                    break
                stopping = undeliverable(documents, lease, container.id, self._settings.selection.fields)
                found.append(NextPage(lease.token, select(documents, self._settings.selection), stopping))
        return found

    async def partition_of(self, partition_key: str, /) -> str | None:
        """Return the token of the lease that covers the key."""
        positions = self._own or await self._read_own()
        with explaining(self._place.container):
            lease = await positions.lease_of(partition_key)
        return None if lease is None else lease.token

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        """Return the last events of a key. The cost is the same however many older events the key has.

        It takes a query of one partition for the times of `limit` events, in the order of `_ts`, which is always
        indexed; and the change feed of the key from the oldest of these times on, as queries have no `_lsn`: about
        `limit` events, those of five seconds before, and other documents of the key that were changed since.
        """
        partition = await self.partition_of(partition_key) or ""
        where, values = await self._where()
        latest = f"SELECT TOP @count c._ts FROM c WHERE {where} ORDER BY c._ts DESC"
        times = [row["_ts"] for row in await self._query(partition_key, latest, count=limit + 1, **values)]
        if not times:
            return [], False
        until = None if self._rules is None else self._rules.until
        document_of = await documents_by(self._settings.selection, until, times[0])
        feed = self._feed_of_key(partition_key, times[:limit][-1])
        documents = [brief(each) async for stored in feed if (each := document_of(stored)) is not None]
        events = [committed_of(each, partition, place) for each, place in numbered(documents)]
        return events[-limit:], len(times) > limit or len(events) > limit

    async def data(self, partition_key: str, ids: Collection[str], /) -> Mapping[str, str]:
        """Return the data of events, with numbers as Python reads them.

        Queries one partition for each hundred of them.
        """
        wanted = list(ids)
        found: dict[str, str] = {}
        for start in range(0, len(wanted), _IDS):
            for document in await self._of_ids(partition_key, wanted[start : start + _IDS], ("data",)):
                fields = document.fields
                if "data" in fields:
                    found[fields["id"]] = document.body or jsontext.encode(fields["data"]).decode()
        return found

    async def identity(self) -> str:
        """Return the container's `_rid`."""
        container = await self._container()
        with explaining(container.id):
            return str((await container.read())["_rid"])

    async def in_range(self, chosen: Range, /) -> Reading:
        return CosmosReading(await self._container(), self._settings.selection, chosen)

    def event_of(self, document: SourceDocument, /) -> Event | Rejected:
        return self._settings.selection.judged(event_of(document))

    async def restored(self, document: SourceDocument, /) -> SourceDocument | None:
        """Return None: the change feed has whole documents."""
        return None

    def document_of(self, stored: StoredDocument, place: Place | None = None, /) -> SourceDocument:
        """Return the mapped document of a stored one, which has its place itself."""
        return self._settings.selection.fields.document(stored)

    async def current(self, partition_key: str, identifier: str, /) -> SourceDocument | None:
        """Return the document of an event as it is now, by a query, or None if there is none."""
        return next(iter(await self._of_ids(partition_key, [identifier])), None)

    async def find(self, partition_key: str, identifier: str, /) -> Found | None:
        """Find an event, whose id may have `/`, `?` or `#`.

        One joined from several is looked for among all of the key.
        """
        fields = self._settings.selection.fields
        found = await self._of_ids(partition_key, [identifier])
        if not found:
            return None
        taken = self._settings.selection.takes(found[0])
        # Only the change feed has the _lsn.
        async with aclosing(self._feed_of_key(partition_key, found[0].stored["_ts"])) as feed:
            async for each in feed:
                document = fields.document(each)
                if document.fields.get("id") == identifier:
                    passed = await self._passed(partition_key, document.lsn)
                    return Found(document.fields.get("type"), taken, passed, [document.place])
        return Found(found[0].fields.get("type"), taken, None)

    async def passed(self, document: SourceDocument, /) -> bool:
        return await self._passed(document.fields.get("partitionKey"), document.lsn) is True

    async def passed_behind(self, event: Event, /) -> Collection[str]:
        """Return the ids of later passed events.

        Events of a key are asked for in commit order: one reading of the feed serves them all.
        """
        place = event.document.place.in_feed
        if place is None or event.committed_at is None:
            return ()
        key = event.partition_key
        if key not in self._passed_of_key:
            self._passed_of_key[key] = await self._read_passed(key, event.committed_at)
        return [identifier for other, identifier in self._passed_of_key[key] if other > place]

    async def close(self) -> None:
        await self._containers.close()
        await self._feed_containers.close()
        if self._rules is not None:
            await self._rules.close()

    async def _where(self) -> tuple[str, dict[str, Any]]:
        """Return the condition of a query for documents that may be events, whenever they were committed."""
        if self._rules is None:
            return of_type(self._settings.selection)
        return of_any_type(await self._rules.all())

    async def _read_passed(self, partition_key: str, since: int) -> list[tuple[PlaceInFeed, str]]:
        """Return the events of a key that the relay has passed, or may have passed if no lease tells."""
        found = []
        async for stored in self._feed_of_key(partition_key, since):
            document = self._settings.selection.document_of(stored)
            place = None if document is None else document.place.in_feed
            if document is None or stored["_ts"] < since or place is None:
                continue
            if await self._passed(partition_key, document.lsn) is not False:
                found.append((place, str(document.fields["id"])))
        return found

    async def _passed(self, partition_key: object, lsn: object) -> bool | None:
        """Return True if the leases have passed an LSN of a key, or None if unknown."""
        if not isinstance(partition_key, str) or not isinstance(lsn, int):
            return None
        if self._checkpoints is None:
            self._checkpoints = await self._read_positions(own_only=False)
        return await self._checkpoints.passed(partition_key, lsn)

    async def _of_ids(
        self, partition_key: str, ids: Collection[str], names: Sequence[str] | None = None
    ) -> list[SourceDocument]:
        """Return the documents of a key with these ids; only `_ts` and the named fields if some are named."""
        fields = self._settings.selection.fields
        id_places = fields.of_document("id")
        columns = "*"
        if names is not None:
            needed = dict.fromkeys(each.names[:1] for name in ("id", *names) for each in fields.of_document(name))
            columns = ", ".join([*(expression(Pointer("", each)) for each in needed), "c._ts"])
        # By a query: an id may have characters with which no document can be addressed.
        where, values = of_type(self._settings.selection)
        if len(id_places) == 1:
            where, values = f"ARRAY_CONTAINS(@ids, {expression(id_places[0])})", {"ids": list(ids)}
        rows = await self._query(partition_key, f"SELECT {columns} FROM c WHERE {where}", **values)
        wanted = tuple(ids)
        return [document for row in rows if (document := fields.document(row)).fields.get("id") in wanted]

    async def _query(self, partition_key: str, query: str, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a query of one partition."""
        container = await self._container()
        with explaining(container.id):
            rows = container.query_items(query, parameters=parameters(**values), partition_key=partition_key)
            return [row async for row in rows]

    async def _feed_of_key(self, partition_key: str, since: int) -> AsyncGenerator[StoredDocument, None]:
        """Yield the documents of a key that were changed since a time, in seconds since 1970."""
        container = await self._container()
        with explaining(container.id):
            feed_range = await container.feed_range_from_partition_key(partition_key)
            start = feed_start(since)
            async for document in container.query_items_change_feed(feed_range=feed_range, start_time=start):
                yield document

    async def _read_own(self) -> Positions:
        self._own = await self._read_positions(own_only=True)
        return self._own

    async def _read_positions(self, *, own_only: bool) -> Positions:
        container = await self._container()
        name = self._place.lease_container
        known = None if self._own is None else self._own.keys
        with explaining(name):
            leases = await self._containers.open(name)
            return await read_positions(
                leases, container, prefix=self._place.lease_prefix, own_only=own_only, keys=known
            )

    async def _container(self) -> ContainerProxy:
        name = self._place.container
        with explaining(name):
            return await self._containers.open(name)


def _position(lease: LeasePosition) -> Position:
    text = None if lease.continuation is None else lease.continuation.strip('"')
    place = None if lease.done < 0 else (lease.done, sys.maxsize)
    return Position(lease.token, lease.owner, text, place, lease.etag, _LEASE_S)


class CosmosCanary:
    """An outbox container; `outbox.Canary` says what each method does."""

    def __init__(self, container: ContainerProxy, fields: Fields = PLAIN) -> None:
        self._container = container
        self._fields = fields

    async def write(self, document: dict[str, Any], /) -> SourceDocument:
        with explaining(self._container.id):
            return self._fields.document(await self._container.create_item(document))

    async def remove(self, document: dict[str, Any], /) -> str | None:
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        identifier, partition_key = document["id"], self._fields.of_document("key")[0].find(document)
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                with explaining(self._container.id):
                    await self._container.delete_item(identifier, partition_key=partition_key)
        except (ServiceError, TimeoutError) as error:
            if not isinstance(error.__cause__, CosmosResourceNotFoundError):
                return f"document {identifier!r} of {partition_key!r}"
        return None


@asynccontextmanager
async def open_canary(settings: Settings) -> AsyncIterator[CosmosCanary]:
    """The outbox container of the settings. Raises ServiceError if the account cannot be reached."""
    containers = Containers(settings.in_cosmos)
    try:
        with explaining(settings.in_cosmos.container):
            container = await containers.open(settings.in_cosmos.container)
        yield CosmosCanary(container, settings.selection.fields)
    finally:
        await containers.close()
