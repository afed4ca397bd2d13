"""The relay's positions, which the change feed processor keeps in the lease container.

The Functions trigger writes a lease for each physical partition (Azure/azure-cosmos-dotnet-v3,
ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseCore.cs). Of a lease, three things count here:

- its id, `<prefix><account host>_<database rid>_<container rid>..<lease token>`: the resource ids distinguish
  the leases of this container from those of others, and of an earlier container of the same name;
- `FeedRange.Range`, the range of effective partition keys that it covers, `min` included, `max` not;
- `ContinuationToken`, the change feed's ETag up to which everything is done: an LSN in quotes, or null where
  nothing is done yet. The child of a split physical partition continues from its parent's, as the LSNs do.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from relay.cosmos.effective_keys import EffectiveKeys
from relay.events import Document

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
        maximum: The first one behind it.
        owner: The host that holds it; None if none does.
        continuation: The change feed's ETag, as stored; None if nothing is done yet.
    """

    id: str
    minimum: str
    maximum: str
    owner: str | None
    continuation: str | None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LeasePosition | None:
        """A lease of a lease document; None for one without a range, which no current host has acquired yet."""
        try:
            bounds = document["FeedRange"]["Range"]
            minimum, maximum = bounds["min"], bounds["max"]
        except (KeyError, TypeError):
            return None
        return cls(document["id"], minimum, maximum, document.get("Owner"), document.get("ContinuationToken"))

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

    def may_be_skipped_by(self, other: LeasePosition) -> bool:
        """Whether another lease that covers keys of this one was made later, and covers others too.

        Where partitions were merged and split before the processor noticed either, a lease of a new partition
        begins at the position of one of the old leases, for the keys of the others as well
        (PartitionSynchronizerCore.HandlePartitionGoneAsync, for leases of partitions: each range that overlaps).
        """
        reaches_beyond = other.minimum < self.minimum or self.maximum < other.maximum
        return reaches_beyond and self._number < other._number

    @property
    def _number(self) -> int:
        """Partitions are numbered as they are made. A lease of a mere range replaces an old one after a merge."""
        return int(self.token) if self.token.isdecimal() else _NOTHING

    def has_passed(self, document: Document) -> bool:
        """Whether everything up to a document of its range is known to be done; False if it has no `_lsn`."""
        lsn = document.get("_lsn")
        return isinstance(lsn, int) and lsn <= self.done


class Positions:
    """The positions of the relay's leases at one moment. They only grow, so an old reading is on the safe side.

    Several leases may cover a key: after a split, the parent's lease can remain next to its children's
    (azure-cosmos-dotnet-v3 issue 5604). Of one trigger's leases, any that has passed an LSN settles it: a lease
    advances only after an invocation succeeded, and a lease that takes over a range starts at the continuation of
    the one before, so LSNs are comparable along a range. What an older lease has not passed, one that reaches
    beyond its range may have skipped (`LeasePosition.may_be_skipped_by`). Leases of different triggers say nothing
    of each other: there each one must have passed it.

    Attributes:
        leases: The leases of the outbox container, in the order of their ranges.
        keys: The effective partition keys of the outbox container.
    """

    def __init__(
        self, keys: EffectiveKeys, leases: Iterable[LeasePosition], *, of_one_trigger: bool = False
    ) -> None:
        """`of_one_trigger`: whether all of the leases are known to be those of the relay's own trigger."""
        self.keys = keys
        self.leases = sorted(leases, key=lambda lease: (lease.minimum, lease.id))
        self._of_one_trigger = of_one_trigger
        # From each bound to the next one: the last LSN that was passed, and the last one that may have been.
        self._bounds = sorted({"", *(bound for each in self.leases for bound in (each.minimum, each.maximum))})
        self._reached = [self._reached_from(bound) for bound in self._bounds]
        # Nothing lies behind the last bound if that is the end of all ranges.
        inside = self._reached[:-1] if self._bounds[-1] >= _END else self._reached
        self._done_everywhere = min((done for done, _ in inside), default=_NOTHING)
        self._done_anywhere = max((done for done, _ in inside), default=_NOTHING)

    async def has_passed(self, partition_key: Any, lsn: int) -> bool:
        """Whether everything that was committed to a partition key up to an LSN is known to be done.

        An event is done if Service Bus accepted it or quarantine stored it. The key, a value as the SDK takes it,
        is only hashed if the leases disagree about the LSN.
        """
        if self._done_everywhere < lsn <= self._done_anywhere:
            return await self.passed(partition_key, lsn) is True
        return lsn <= self._done_everywhere

    async def passed(self, partition_key: Any, lsn: int) -> bool | None:
        """As `has_passed`; None if no lease covers the key, or if the position that decides is unknown."""
        effective_key = await self.keys.of(partition_key)
        if effective_key is None:
            return None
        done, begun = self._reached[bisect_right(self._bounds, effective_key) - 1]
        if lsn <= done:
            return True
        return False if lsn > begun else None

    async def lease_of(self, partition_key: str) -> LeasePosition | None:
        """The first lease that covers a key; None if none does."""
        effective_key = await self.keys.of(partition_key)
        covering = (lease for lease in self.leases if effective_key and lease.covers(effective_key))
        return next(covering, None)

    def within(self, feed_range: Mapping[str, Any]) -> list[LeasePosition]:
        """The leases that cover a part of a feed range, as the SDK gives it."""
        minimum, maximum = feed_range["Range"]["min"], feed_range["Range"]["max"]
        return [lease for lease in self.leases if lease.minimum < maximum and minimum < lease.maximum]

    def overlapping(self) -> list[tuple[LeasePosition, LeasePosition]]:
        """Pairs of leases of which the second begins within the first."""
        found = []
        widest: LeasePosition | None = None
        for lease in self.leases:
            if widest is not None and lease.minimum < widest.maximum:
                found.append((widest, lease))
            if widest is None or lease.maximum > widest.maximum:
                widest = lease
        return found

    def _reached_from(self, bound: str) -> tuple[int, float]:
        covering = [lease for lease in self.leases if lease.covers(bound)]
        if not covering:
            return _NOTHING, math.inf
        if not self._of_one_trigger:
            return _nearest(covering)
        # One lease is enough, with those whose keys it may have skipped.
        reached = [
            _nearest([lease, *(each for each in covering if each.may_be_skipped_by(lease))]) for lease in covering
        ]
        return max(done for done, _ in reached), max(begun for _, begun in reached)


def _nearest(leases: Iterable[LeasePosition]) -> tuple[int, float]:
    """The last LSN that each of these leases has passed, and the last one that each may have."""
    reached = [lease.reached for lease in leases]
    return min(done for done, _ in reached), min(begun for _, begun in reached)


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
    If there are such leases, they are the relay's; else all leases of the container count, and each of them must
    have passed an event, unless `own_only`: what another function has passed may still be the relay's to publish.
    Those of another stream of the relay count for none but itself: with a prefix, only its own are read. A read
    that is behind gives positions that are behind. `keys` are those of the container, where an earlier reading has
    worked some of them out.
    """
    found = []
    # The resource id alone may not begin a lease's id: what is before it is the account's host.
    definition = await monitored.read()
    container_id = f"_{definition['_rid']}{_SEPARATOR}"
    documents = leases.query_items(
        "SELECT c.id, c.FeedRange, c.ContinuationToken, c.Owner FROM c WHERE CONTAINS(c.id, @container)",
        parameters=[{"name": "@container", "value": container_id}],
    )
    async for document in documents:
        lease = LeasePosition.from_document(document)
        if lease is not None:
            found.append(lease)
    host = urlsplit(monitored.client_connection.url_connection).hostname
    own = [lease for lease in found if lease.id.startswith(f"{prefix}{host}_")]
    keys = keys or EffectiveKeys(monitored, definition.get("partitionKey", {}))
    if own or own_only or prefix:
        return Positions(keys, own, of_one_trigger=True)
    return Positions(keys, found)
