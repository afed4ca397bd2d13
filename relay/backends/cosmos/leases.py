"""The relay's positions, which the change feed processor keeps in the lease container.

The Functions trigger writes a lease for each physical partition (Azure/azure-cosmos-dotnet-v3,
ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseCore.cs). Of a lease, three things count here:

- its id, `<prefix><account host>_<database rid>_<container rid>..<lease token>`: the resource ids distinguish
  the leases of this container from those of others, and of an earlier container of the same name;
- `FeedRange.Range`, the range of effective partition keys that it covers, `min` included, `max` not;
- `ContinuationToken`, the change feed's ETag up to which everything is done: an LSN in quotes, or null where
  nothing is done yet. The child of a split physical partition continues from its parent's, as the LSNs do.

Several leases may cover a key, and none of them says how old it is. A lease that a split has left behind lies
beside those that replaced it (azure-cosmos-dotnet-v3 issue 5604). Where partitions were split and merged before a
host noticed, the lease of a new partition begins at the position of one old lease, also for keys of which another
is behind (PartitionSynchronizerCore.HandlePartitionGoneAsync), and both are read from then on. So an event is done
once *every* lease that covers its key has passed it.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from relay.backends.cosmos.effective_keys import EffectiveKeys
from relay.core.documents import StoredDocument

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

_SEPARATOR = ".."
_TOKEN = re.compile(r'"?(?P<lsn>\d+)(?P<more>[^"]*)"?')

# The end of the last range, and an LSN before all others.
_END = "FF"
_NOTHING = -1


@dataclass(frozen=True, slots=True)
class LeasePosition:
    """One lease, and its position.

    Attributes:
        id: The lease document's id.
        minimum: The first effective partition key it covers, in hexadecimal.
        maximum: The first one behind it; equal to `minimum` if the range is unknown.
        owner: The host that holds it; None if none does.
        continuation: The change feed's ETag, as stored; None if nothing is done yet.
        etag: The document's own, which every renewal changes; None if it was not read.
    """

    id: str
    minimum: str
    maximum: str
    owner: str | None
    continuation: str | None
    etag: str | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LeasePosition:
        """Read a lease document. Older ones have no range until a current host has acquired them."""
        try:
            bounds = document["FeedRange"]["Range"]
            minimum, maximum = bounds["min"], bounds["max"]
        except (KeyError, TypeError):
            minimum = maximum = ""
        return cls(
            document["id"],
            minimum,
            maximum,
            document.get("Owner"),
            document.get("ContinuationToken"),
            document.get("_etag"),
        )

    @property
    def token(self) -> str:
        """The lease token: the partition key range's id."""
        return self.id.rpartition(_SEPARATOR)[2]

    @property
    def reached(self) -> tuple[int, float]:
        """The last LSN of which everything is known to be done, and the last one of which something may be done.

        The first is -1 if nothing is done, the second is infinite if the continuation contains no LSN.
        """
        if self.continuation is None:
            return _NOTHING, _NOTHING
        match = _TOKEN.fullmatch(self.continuation)
        if match is None:
            return _NOTHING, math.inf
        lsn = int(match["lsn"])
        # One with more than an LSN may be within the transaction of that LSN.
        return (lsn - 1 if match["more"] else lsn), lsn

    @property
    def done(self) -> int:
        """The first of `reached`."""
        return self.reached[0]

    def covers(self, effective_key: str) -> bool:
        return self.minimum <= effective_key < self.maximum

    def has_passed(self, document: StoredDocument) -> bool:
        """Return True if all of its range up to a document is known to be done.

        It is False for a document without `_lsn`.
        """
        lsn = document.get("_lsn")
        return isinstance(lsn, int) and lsn <= self.done


class Positions:
    """The positions of the relay's leases at one moment. They only grow, so an old reading is on the safe side.

    Attributes:
        leases: The leases of the outbox container whose ranges are known, in the order of these.
        keys: The effective partition keys of the outbox container.
    """

    def __init__(self, keys: EffectiveKeys, leases: Iterable[LeasePosition]) -> None:
        self.keys = keys
        found = sorted(leases, key=lambda lease: (lease.minimum, lease.id))
        self.leases = [lease for lease in found if lease.minimum < lease.maximum]
        # One without a range may cover any key.
        self._anywhere = [lease for lease in found if lease.minimum >= lease.maximum]
        # From each bound to the next one: the last LSN that was passed, and the last one that may have been.
        self._bounds = sorted({"", *(bound for each in self.leases for bound in (each.minimum, each.maximum))})
        self._reached = [self._reached_from(bound) for bound in self._bounds]
        # Nothing lies behind the last bound if that is the end of all ranges.
        inside = self._reached[:-1] if self._bounds[-1] >= _END else self._reached
        self._done_everywhere = min((done for done, _ in inside), default=_NOTHING)
        self._done_anywhere = max((done for done, _ in inside), default=_NOTHING)

    async def has_passed(self, partition_key: Any, lsn: int) -> bool:
        """Return True if every lease that covers a partition key has passed an LSN.

        An event is done if Service Bus accepted it or quarantine stored it. The key, a value as the SDK takes it,
        is only hashed if the leases disagree about the LSN.
        """
        if self._done_everywhere < lsn <= self._done_anywhere:
            return await self.passed(partition_key, lsn) is True
        return lsn <= self._done_everywhere

    async def passed(self, partition_key: Any, lsn: int) -> bool | None:
        """Return True if every lease that covers the key has passed an LSN, False if none has, else None.

        None also if no lease covers the key, or a position is unknown.
        """
        effective_key = await self.keys.of(partition_key)
        if effective_key is None:
            return None
        done, begun = self._reached[bisect_right(self._bounds, effective_key) - 1]
        if lsn <= done:
            return True
        return False if lsn > begun else None

    async def lease_of(self, partition_key: str) -> LeasePosition | None:
        """Return the lease that is furthest behind of those that cover a partition key; None if none does."""
        effective_key = await self.keys.of(partition_key)
        return None if effective_key is None else self.last_of(effective_key)

    def within(self, feed_range: Mapping[str, Any]) -> list[LeasePosition]:
        """Return the leases that cover a part of a feed range, as the SDK gives it."""
        minimum, maximum = feed_range["Range"]["min"], feed_range["Range"]["max"]
        return [lease for lease in self.leases if lease.minimum < maximum and minimum < lease.maximum]

    def last_of(self, effective_key: str) -> LeasePosition | None:
        """Return the lease that is furthest behind of those that cover an effective key; None if none does."""
        return min(self._covering(effective_key), key=lambda lease: lease.done, default=None)

    def _reached_from(self, bound: str) -> tuple[int, float]:
        """Return the last LSN that every lease there has passed, and the last one that any of them may have."""
        covering = self._covering(bound)
        if not covering:
            return _NOTHING, math.inf
        reached = [lease.reached for lease in (*covering, *self._anywhere)]
        return min(done for done, _ in reached), max(begun for _, begun in reached)

    def _covering(self, effective_key: str) -> list[LeasePosition]:
        return [lease for lease in self.leases if lease.covers(effective_key)]


async def read_positions(
    leases: ContainerProxy,
    monitored: ContainerProxy,
    *,
    prefix: str = "",
    own_only: bool = False,
    keys: EffectiveKeys | None = None,
) -> Positions:
    """Read the positions of the leases that relays of `monitored` keep in `leases`. Raises AzureError.

    A trigger names its leases after its lease prefix, which is empty for the first stream, and the account's host.
    If there are such leases, they are the relay's; else all leases of the container count, unless `own_only`: what
    another function has passed may still be the relay's to publish. Those of another stream of the relay count for
    none but itself: with a prefix, only its own are read. A read that is behind gives positions that are behind.
    `keys` are those of the container, where an earlier reading has worked some of them out.
    """
    # The resource id alone may not begin a lease's id: what is before it is the account's host.
    definition = await monitored.read()
    container_id = f"_{definition['_rid']}{_SEPARATOR}"
    documents = leases.query_items(
        "SELECT c.id, c.FeedRange, c.ContinuationToken, c.Owner, c._etag FROM c WHERE CONTAINS(c.id, @container)",
        parameters=[{"name": "@container", "value": container_id}],
    )
    found = [LeasePosition.from_document(document) async for document in documents]
    host = urlsplit(monitored.client_connection.url_connection).hostname
    own = [lease for lease in found if lease.id.startswith(f"{prefix}{host}_")]
    keys = keys or EffectiveKeys(monitored, definition.get("partitionKey", {}))
    return Positions(keys, own if own or own_only or prefix else found)
