"""How far the relay has come: the positions that the change feed processor keeps in the lease container.

The Functions trigger writes a lease for each physical partition (Azure/azure-cosmos-dotnet-v3,
ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseCore.cs). Of a lease, three things count here:

- its id, `<prefix><account host>_<database rid>_<container rid>..<lease token>`: the resource ids distinguish
  the leases of this container from those of others, and of an earlier container of the same name;
- `FeedRange.Range`, the range of effective partition keys that it covers, `min` included, `max` not;
- `ContinuationToken`, the change feed's ETag up to which everything is done: an LSN in quotes, or null where
  nothing is done yet. The child of a split physical partition goes on from its parent's, as the LSNs do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

_SEPARATOR = ".."
_TOKEN = re.compile(r'"?(?P<lsn>\d+)(?P<more>[^"]*)"?')


@dataclass(frozen=True, slots=True)
class LeasePosition:
    """One lease, and how far it has come.

    Attributes:
        id: The lease document's id.
        minimum: The first effective partition key it covers, in hexadecimal.
        maximum: The first one behind it.
        owner: The host that holds it; None where none does.
        continuation: The change feed's ETag, as stored; None where nothing is done yet.
    """

    id: str
    minimum: str
    maximum: str
    owner: str | None
    continuation: str | None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LeasePosition | None:
        """A lease of a lease document; None for one without a range, which no current host has acquired yet."""
        feed_range = document.get("FeedRange")
        bounds = feed_range.get("Range") if isinstance(feed_range, Mapping) else None
        if not isinstance(bounds, Mapping):
            return None
        return cls(
            id=document["id"],
            minimum=bounds["min"],
            maximum=bounds["max"],
            owner=document.get("Owner"),
            continuation=document.get("ContinuationToken"),
        )

    @property
    def prefix(self) -> str:
        """What the ids of all leases of one trigger begin with."""
        return self.id.rpartition(_SEPARATOR)[0]

    @property
    def token(self) -> str:
        """The lease token: the partition key range's id."""
        return self.id.rpartition(_SEPARATOR)[2]

    @property
    def lsn(self) -> int | None:
        """The LSN it has reached: 0 where nothing is done yet, None where the continuation contains no LSN."""
        if self.continuation is None:
            return 0
        match = _TOKEN.fullmatch(self.continuation)
        return None if match is None else int(match["lsn"])

    def covers(self, effective_key: str) -> bool:
        """Whether this effective partition key is in its range."""
        return self.minimum <= effective_key < self.maximum

    def passed(self, lsn: int) -> bool | None:
        """Whether everything of this LSN is done; None where the continuation does not say.

        One that says more than an LSN may stand within the transaction of that LSN.
        """
        if self.continuation is None:
            return False
        match = _TOKEN.fullmatch(self.continuation)
        if match is None:
            return None
        reached = int(match["lsn"])
        if lsn == reached and match["more"]:
            return None
        return lsn <= reached


class Positions:
    """The positions of the relay's leases at one moment. They only grow, so an old reading is on the safe side.

    Attributes:
        leases: The leases of the outbox container, in the order of their ranges.
    """

    def __init__(self, monitored: ContainerProxy, leases: Iterable[LeasePosition]) -> None:
        self._monitored = monitored
        self.leases = sorted(leases, key=lambda lease: (lease.minimum, lease.id))
        self._effective_keys: dict[str, str] = {}

    async def passed(self, partition_key: str, lsn: int) -> bool | None:
        """Whether the relay is done with everything that was committed to a partition key up to an LSN.

        Args:
            partition_key: A partition key value of the outbox container.
            lsn: The `_lsn` of a document from its change feed.

        Returns:
            True where every lease that covers the key has passed it: each event up to there was accepted by
            Service Bus or stored in quarantine. False where one has not. None where no lease covers the key, or
            where the position of one is unknown.
        """
        effective_key = await self._effective_key(partition_key)
        answers = [lease.passed(lsn) for lease in self.leases if lease.covers(effective_key)]
        if any(answer is False for answer in answers):
            return False
        return True if answers and all(answers) else None

    async def _effective_key(self, partition_key: str) -> str:
        known = self._effective_keys.get(partition_key)
        if known is None:
            feed_range = await self._monitored.feed_range_from_partition_key(partition_key)
            known = self._effective_keys[partition_key] = str(feed_range["Range"]["min"])
        return known


async def read_positions(
    leases: ContainerProxy, monitored: ContainerProxy, *, own_only: bool = False
) -> Positions:
    """Read the positions of the leases that relays of `monitored` keep in `leases`.

    A trigger without a lease prefix of its own, as the relay's is, names its leases after the account's host
    alone. Where there are such leases, they are the relay's; else all leases of the container count, and
    `Positions.passed` asks each of them, unless `own_only`: what another function has passed may still be the
    relay's to publish. A read that is behind gives positions that are behind.

    Raises:
        azure.core.exceptions.AzureError: One of the two containers cannot be read.
    """
    found = []
    # The resource id alone may not begin a lease's id: what is before it is the account's host.
    container_id = f"_{(await monitored.read())['_rid']}{_SEPARATOR}"
    documents = leases.query_items(
        "SELECT c.id, c.FeedRange, c.ContinuationToken, c.Owner FROM c WHERE CONTAINS(c.id, @container)",
        parameters=[{"name": "@container", "value": container_id}],
    )
    async for document in documents:
        lease = LeasePosition.from_document(document)
        if lease is not None:
            found.append(lease)
    host = urlsplit(monitored.client_connection.url_connection).hostname
    own = [lease for lease in found if lease.id.startswith(f"{host}_")]
    return Positions(monitored, own if own or own_only else found)
