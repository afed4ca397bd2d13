"""Lease documents: who reads which physical partition, and how far it has got.

Their shape and their rules are those of the .NET change feed processor (Azure/azure-cosmos-dotnet-v3,
ChangeFeedProcessor/LeaseManagement), so that tools which read leases find what they find in Azure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from local.functions.feed import PartitionRange

PREFIX_SEPARATOR = ".."
INITIALIZED_MARKER = ".info"
_MODE = "Incremental Feed"
_CONFLICTS = 5

logger = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another host owns the lease, or it was deleted."""


@dataclass(frozen=True, slots=True)
class Lease:
    """`token` is the id of `partition`; `continuation` the feed's ETag up to which all is done, or None.

    `document` is what the container holds, with whatever a newer processor may have added.
    """

    id: str
    partition: PartitionRange
    owner: str | None
    continuation: str | None
    timestamp: datetime
    etag: str
    document: Mapping[str, Any] = field(repr=False)

    @property
    def token(self) -> str:
        return self.partition.id

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Lease:
        written = document.get("timestamp")
        bounds = document["FeedRange"]["Range"]
        return cls(
            id=document["id"],
            partition=PartitionRange(document["LeaseToken"], bounds["min"], bounds["max"]),
            owner=document.get("Owner"),
            continuation=document.get("ContinuationToken"),
            timestamp=datetime.fromisoformat(written) if written else datetime.fromtimestamp(document["_ts"], UTC),
            etag=document["_etag"],
            document=document,
        )

    def to_document(self) -> dict[str, Any]:
        return {
            **self.document,
            "Owner": self.owner,
            "ContinuationToken": self.continuation,
            "timestamp": self.timestamp.isoformat().replace("+00:00", "Z"),
        }


class LeaseStore:
    """The leases of one trigger in the lease container, as one host (`owner`) sees and changes them."""

    def __init__(self, container: ContainerProxy, *, prefix: str, owner: str, partitioned_by_id: bool) -> None:
        self._container = container
        self._prefix = prefix
        self._owner = owner
        self._partitioned_by_id = partitioned_by_id

    async def initialize(self, ranges: Iterable[PartitionRange]) -> None:
        """Create the leases, once for all hosts; a marker document tells those that come later.

        Creating a lease that another host has just created changes nothing, so no lock is taken.
        """
        marker = self._prefix + INITIALIZED_MARKER
        try:
            await self._container.read_item(marker, partition_key=marker)
        except CosmosResourceNotFoundError:
            for partition_range in ranges:
                await self._create(self._new_document(partition_range))
            await self._create(self._with_partition_key({"id": marker}))

    async def all(self) -> list[Lease]:
        """Every lease of this trigger, whoever owns it, in the order of their ids."""
        documents = self._container.query_items(
            "SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)",
            parameters=[{"name": "@prefix", "value": self._prefix + PREFIX_SEPARATOR}],
        )
        leases = [Lease.from_document(document) async for document in documents]
        return sorted(leases, key=lambda lease: lease.id)

    async def acquire(self, lease: Lease) -> Lease:
        """Make it this host's, unless its owner has changed since it was read. Raises LeaseLost."""
        return await self._update(lease, lambda current: replace(current, owner=self._owner), expected=lease.owner)

    async def renew(self, lease: Lease) -> Lease:
        """Show that the owner is alive. Raises LeaseLost."""
        return await self._update(lease, lambda current: current, expected=self._owner)

    async def checkpoint(self, lease: Lease, continuation: str) -> Lease:
        """Record that everything up to there is done. Raises LeaseLost."""
        return await self._update(
            lease, lambda current: replace(current, continuation=continuation), expected=self._owner
        )

    async def release(self, lease: Lease) -> Lease:
        """Leave it to whoever wants it. Raises LeaseLost."""
        return await self._update(lease, lambda current: replace(current, owner=None), expected=self._owner)

    async def _update(self, lease: Lease, change: Callable[[Lease], Lease], *, expected: str | None) -> Lease:
        """Write the change against the lease's ETag; on a conflict look again, while `expected` still owns it."""
        for _ in range(_CONFLICTS + 1):
            if lease.owner != expected:
                raise LeaseLost(f"{lease.token} lease token was taken over by owner '{lease.owner}'")
            changed = replace(change(lease), timestamp=datetime.now(UTC))
            try:
                return Lease.from_document(await self._replace(changed))
            except CosmosAccessConditionFailedError:
                lease = await self._read(lease)
            except CosmosResourceNotFoundError:
                raise LeaseLost(f"{lease.token} lease was deleted") from None
        raise LeaseLost(f"{lease.token} lease was changed by others {_CONFLICTS + 1} times in a row")

    async def _replace(self, lease: Lease) -> Mapping[str, Any]:
        return await self._container.replace_item(
            lease.id, lease.to_document(), etag=lease.etag, match_condition=MatchConditions.IfNotModified
        )

    async def _read(self, lease: Lease) -> Lease:
        partition_key = lease.id if self._partitioned_by_id else lease.document["partitionKey"]
        try:
            return Lease.from_document(await self._container.read_item(lease.id, partition_key=partition_key))
        except CosmosResourceNotFoundError:
            raise LeaseLost(f"{lease.token} lease was deleted") from None

    async def _create(self, document: dict[str, Any]) -> None:
        try:
            await self._container.create_item(document)
        except CosmosResourceExistsError:
            logger.debug("another host created %s", document["id"])

    def _new_document(self, partition_range: PartitionRange) -> dict[str, Any]:
        return self._with_partition_key(
            {
                "id": self._prefix + PREFIX_SEPARATOR + partition_range.id,
                "version": 0,
                "LeaseToken": partition_range.id,
                "FeedRange": {"Range": {"min": partition_range.minimum, "max": partition_range.maximum}},
                "Owner": None,
                "ContinuationToken": None,
                "properties": {},
                "Mode": _MODE,
            }
        )

    def _with_partition_key(self, document: dict[str, Any]) -> dict[str, Any]:
        """A lease container partitioned by /partitionKey, which Gremlin accounts need, holds the id there too."""
        return document if self._partitioned_by_id else {**document, "partitionKey": document["id"]}
