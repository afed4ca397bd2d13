"""An outbox in Cosmos DB, as the console reads it.

It needs an identity that may read the outbox container, the lease container and the quarantine container: the
role Cosmos DB Built-in Data Reader. It never writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from relay import jsontext
from relay.console.model import Committed
from relay.console.ports import Position
from relay.cosmos.containers import Containers
from relay.cosmos.effective_keys import EffectiveKeys
from relay.cosmos.feed import Feed, event_of, numbered
from relay.cosmos.leases import read_positions
from relay.cosmos.ranges import Ranges
from relay.errors import ServiceError, first_line
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

# The change feed is asked for this much before the oldest event wanted, so that the service's rounding of times
# does not decide.
_MARGIN_S = 5

# The ids of one query, whose text may have 512 KB.
_IDS = 100


class CosmosOutbox:
    """Reads the change feed and the leases; `ports.Outbox` says what of it is promised.

    A look at a feed without news costs about 1 RU for each physical partition, and the leases about 3 RU.
    """

    def __init__(self, settings: Settings, *, from_beginning: bool) -> None:
        """`from_beginning`: False to start where the relay's leases are, with what waits for it."""
        self._settings = settings
        self._from_beginning = from_beginning
        self._containers = Containers(settings)
        # The feed has a client of its own.
        self._feed_containers = Containers(settings)
        self._feed: Feed | None = None
        self._keys: EffectiveKeys | None = None
        self._ranges: Ranges | None = None

    async def news(self, limit: int, /) -> Sequence[Committed]:
        """See ports.Outbox. After a split, the children are read on from where their parent was read."""
        ranges = self._ranges or await self._read_ranges()
        with self._explaining(self._settings.cosmos_container):
            if self._feed is None:
                container = await self._feed_containers.open(self._settings.cosmos_container)
                self._feed = Feed(container, self._settings.event_type, from_beginning=self._from_beginning)
            return await self._feed.next(limit, ranges)

    async def positions(self) -> Sequence[Position]:
        """The relay's leases."""
        return (await self._read_ranges()).positions()

    async def partition_of(self, partition_key: str, /) -> str | None:
        """The token of the lease that covers the key."""
        ranges = self._ranges or await self._read_ranges()
        with self._explaining(self._settings.cosmos_container):
            return await ranges.of_key(partition_key)

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        """The last events of a key.

        It costs a query of one partition for the times of `limit` events, in the order of `_ts`, which is always
        indexed; and the change feed of the key from the oldest of these times on, as queries have no `_lsn`: about
        `limit` events, those of the five seconds before, and the other documents of the key that were changed
        since. It does not depend on how many older events the key has.
        """
        container = await self._container()
        ranges = self._ranges or await self._read_ranges()
        with self._explaining(container.id):
            times = [
                row["_ts"]
                async for row in container.query_items(
                    "SELECT TOP @count c._ts FROM c WHERE c.type = @type ORDER BY c._ts DESC",
                    parameters=[
                        {"name": "@count", "value": limit + 1},
                        {"name": "@type", "value": self._settings.event_type},
                    ],
                    partition_key=partition_key,
                )
            ]
            if not times:
                return [], False
            start = datetime.fromtimestamp(max(0, times[:limit][-1] - _MARGIN_S), UTC)
            feed_range = await container.feed_range_from_partition_key(partition_key)
            feed = container.query_items_change_feed(feed_range=feed_range, start_time=start)
            documents = [document async for document in feed if document.get("type") == self._settings.event_type]
            partition = await ranges.of_key(partition_key) or ""
        events = [event_of(each, partition, (lsn, place)) for each, lsn, place in numbered(documents)]
        return events[-limit:], len(times) > limit or len(events) > limit

    async def data(self, partition_key: str, ids: Collection[str], /) -> Mapping[str, str]:
        """See ports.Outbox. A query of one partition for each hundred of them; numbers as Python reads them."""
        container = await self._container()
        wanted = list(ids)
        found: dict[str, str] = {}
        with self._explaining(container.id):
            for start in range(0, len(wanted), _IDS):
                # By a query: an id may have characters with which no document can be addressed.
                rows = container.query_items(
                    "SELECT c.id, c.data FROM c WHERE ARRAY_CONTAINS(@ids, c.id)",
                    parameters=[{"name": "@ids", "value": wanted[start : start + _IDS]}],
                    partition_key=partition_key,
                )
                async for row in rows:
                    if "data" in row:
                        found[row["id"]] = jsontext.encode(row["data"]).decode()
        return found

    async def close(self) -> None:
        """Close both clients."""
        await self._containers.close()
        await self._feed_containers.close()

    async def _read_ranges(self) -> Ranges:
        container = await self._container()
        name = self._settings.cosmos_lease_container
        with self._explaining(name):
            leases = await self._containers.open(name)
            found = await read_positions(leases, container, own_only=True)
            self._keys = self._keys or found.keys
        self._ranges = Ranges(found.leases, self._keys)
        return self._ranges

    async def _container(self) -> ContainerProxy:
        name = self._settings.cosmos_container
        with self._explaining(name):
            return await self._containers.open(name)

    @contextmanager
    def _explaining(self, container: str) -> Iterator[None]:
        try:
            yield
        except (AzureError, OSError) as error:
            raise ServiceError(
                f"the container '{container}' cannot be read: {first_line(error)} Check COSMOS, COSMOS_DATABASE, "
                "the name of the container, and that this identity has the role Cosmos DB Built-in Data Reader."
            ) from error
