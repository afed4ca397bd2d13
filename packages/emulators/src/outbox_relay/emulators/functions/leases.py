"""Lease documents: the owner of each physical partition, and its checkpoint.

Their format and their rules are those of the .NET change feed processor (Azure/azure-cosmos-dotnet-v3,
ChangeFeedProcessor/LeaseManagement), so that tools for leases work here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
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

from outbox_relay.emulators.functions.edges import Edge, Edges, shuffled
from outbox_relay.emulators.functions.feed import PartitionRange
from outbox_relay.emulators.functions.pause import pause

PREFIX_SEPARATOR = ".."
INITIALIZED_MARKER = ".info"
INITIALIZATION_LOCK = ".lock"
LOCK_TTL_S = 30
_MODE = "Incremental Feed"
_OF_PARTITION, _OF_RANGE = 0, 1
_CONFLICTS = 5

# One in this many deletions of a divided lease fails.
_DIVISIONS_A_PARENT_LEFT = 2


class LeaseLost(Exception):
    """Another host owns the lease, or it was deleted."""


@dataclass(frozen=True, slots=True)
class Lease:
    """`token` is the id of `partition`; `continuation` is the checkpoint, an ETag of the feed, or None.

    `document` is the stored one, with any properties that a newer processor has added.
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
        """Read a lease of any version (DocumentServiceLeaseConverter).

        Older ones have neither `version` nor `FeedRange`; those of SDK 2 have `PartitionId` for the token.
        """
        written = document.get("timestamp")
        bounds = (document.get("FeedRange") or {}).get("Range", {})
        partition = PartitionRange(
            document["PartitionId"] if "PartitionId" in document else document["LeaseToken"],
            bounds.get("min", ""),
            bounds.get("max", ""),
            is_part=document.get("version") == _OF_RANGE,
        )
        return cls(
            id=document["id"],
            partition=partition,
            owner=document.get("Owner"),
            continuation=document.get("ContinuationToken"),
            timestamp=datetime.fromisoformat(written) if written else datetime.fromtimestamp(document["_ts"], UTC),
            etag=document["_etag"],
            document=document,
        )

    def to_document(self) -> dict[str, Any]:
        return {
            **self.document,
            **_identity(self.partition),
            "Owner": self.owner,
            "ContinuationToken": self.continuation,
            "timestamp": self.timestamp.isoformat().replace("+00:00", "Z"),
        }

    def located(self, partitions: Sequence[PartitionRange]) -> Lease:
        """Return the lease with the bounds of its partition, which older documents do not have."""
        if self.partition.is_located:
            return self
        known = (each for each in partitions if each.id == self.partition.id)
        return replace(self, partition=next(known, self.partition))


def _identity(partition: PartitionRange) -> dict[str, Any]:
    """Return the members that identify a lease's partition; without bounds if they are unknown."""
    version = _OF_RANGE if partition.is_part else _OF_PARTITION
    identity: dict[str, Any] = {"version": version, "LeaseToken": partition.id}
    if partition.is_located:
        identity["FeedRange"] = {"Range": {"min": partition.minimum, "max": partition.maximum}}
    return identity


class LeaseStore:
    """The leases of one trigger in the lease container, for one host (`owner`)."""

    def __init__(
        self, container: ContainerProxy, *, prefix: str, owner: str, partitioned_by_id: bool, edges: Edges
    ) -> None:
        self._container = container
        self._prefix = prefix
        self._owner = owner
        self._partitioned_by_id = partitioned_by_id
        self._edges = edges
        self._parents_left = edges.random(f"parent leases left by {owner}")
        self._first = edges.random(f"first leases of divisions by {owner}")

    async def initialize(
        self,
        ranges: Callable[[], Awaitable[Sequence[PartitionRange]]],
        *,
        wait_s: float,
        stopping: asyncio.Event,
        awaited: Callable[[], None],
    ) -> None:
        """Create the missing leases, once for all hosts; a marker document records that for later hosts.

        As BootstrapperCore of the .NET processor, under a lock that expires after 30 s if the container has a
        default TTL (-1 is enough). Without one, the lock of a host that was killed remains: every other host polls
        each `wait_s` seconds, silently and endlessly, until `stopping`; `awaited` is called before it waits.
        """
        while not await self._is_initialized():
            lock = await self._take_lock()
            if lock is None:
                self._edges.met(Edge.LOCK_AWAITED)
                awaited()
                if await pause(wait_s, until=stopping):
                    return
                continue
            try:
                await self._create_missing(await ranges())
                await self._create({"id": self._prefix + INITIALIZED_MARKER})
            finally:
                await self._release_lock(lock)
            return

    async def all(self) -> list[Lease]:
        """Return the leases of this trigger with any owner, in the order of their ids."""
        documents = self._container.query_items(
            "SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)",
            parameters=[{"name": "@prefix", "value": self._prefix + PREFIX_SEPARATOR}],
        )
        leases = [Lease.from_document(document) async for document in documents]
        return sorted(leases, key=lambda lease: lease.id)

    async def acquire(self, lease: Lease) -> Lease:
        """Become the owner, unless the owner has changed since the lease was read. Raises LeaseLost."""
        return await self._update(lease, lambda current: replace(current, owner=self._owner), expected=lease.owner)

    async def renew(self, lease: Lease) -> Lease:
        """Renew the lease. Raises LeaseLost."""
        return await self._update(await self._read(lease), lambda current: current, expected=self._owner)

    async def checkpoint(self, lease: Lease, continuation: str) -> Lease:
        """Record that everything up to `continuation` is processed. Raises LeaseLost."""
        return await self._update(
            lease,
            lambda current: replace(current, continuation=continuation),
            expected=self._owner,
            conflicted=lambda: self._edges.met(Edge.CHECKPOINT_CONFLICT),
        )

    async def release(self, lease: Lease) -> Lease:
        """Give up the ownership. Raises LeaseLost."""
        return await self._update(
            await self._read(lease), lambda current: replace(current, owner=None), expected=self._owner
        )

    async def divide(
        self, lease: Lease, children: Sequence[PartitionRange], continuation: str | None
    ) -> list[Lease]:
        """Replace the lease of a split or merged partition by one for each child; returns those created here.

        They have no owner yet, and continue at `continuation`, which was last read, as the children continue the
        parent's numbers. A child that has a lease keeps it, wherever that is: of two divisions that meet in one
        partition, the first one decides. The processor creates them in parallel, this host in an order that is
        drawn. As in the .NET processor, the owner of the lease is not looked at again
        (PartitionControllerCore.HandlePartitionGoneAsync).

        Now and then, if so drawn, the parent's lease cannot be deleted (azure-cosmos-dotnet-v3 issue 5604). The
        processor releases it then (PartitionControllerCore.ProcessPartitionAsync), and its next owner divides it
        again.
        """
        created = [
            await self._create(self._new_document(child) | {"ContinuationToken": continuation})
            for child in shuffled(children, self._first)
        ]
        if self._parents_left is not None and self._parents_left.randrange(_DIVISIONS_A_PARENT_LEFT) == 0:
            self._edges.met(Edge.PARENT_LEASE_LEFT)
            with suppress(LeaseLost):
                await self.release(lease)
        else:
            with suppress(CosmosResourceNotFoundError):
                await self._container.delete_item(lease.id, partition_key=self._partition_key_of(lease))
        return [Lease.from_document(document) for document in created if document is not None]

    async def _update(
        self,
        lease: Lease,
        change: Callable[[Lease], Lease],
        *,
        expected: str | None,
        conflicted: Callable[[], None] = lambda: None,
    ) -> Lease:
        """Write the change if the ETag matches; on a conflict read and try again, while `expected` is the owner.

        The result has the ETag that was sent, not the new one. The .NET processor does so since SDK 3.19, so that
        the next write of that lease is refused once (412), then read and written again.
        """
        for _ in range(_CONFLICTS + 1):
            if lease.owner != expected:
                raise LeaseLost(f"{lease.token} lease token was taken over by owner '{lease.owner}'")
            changed = replace(change(lease), timestamp=datetime.now(UTC))
            try:
                await self._replace(changed)
                return changed
            except CosmosAccessConditionFailedError:
                conflicted()
                lease = await self._read(lease)
            except CosmosResourceNotFoundError:
                raise LeaseLost(f"{lease.token} lease was deleted") from None
        raise LeaseLost(f"{lease.token} lease was changed by others {_CONFLICTS + 1} times in a row")

    async def _replace(self, lease: Lease) -> None:
        await self._container.replace_item(
            lease.id, lease.to_document(), etag=lease.etag, match_condition=MatchConditions.IfNotModified
        )

    async def _read(self, lease: Lease) -> Lease:
        partition_key = self._partition_key_of(lease)
        try:
            return Lease.from_document(await self._container.read_item(lease.id, partition_key=partition_key))
        except CosmosResourceNotFoundError:
            raise LeaseLost(f"{lease.token} lease was deleted") from None

    async def _is_initialized(self) -> bool:
        marker = self._prefix + INITIALIZED_MARKER
        try:
            await self._container.read_item(marker, partition_key=marker)
        except CosmosResourceNotFoundError:
            return False
        return True

    async def _take_lock(self) -> Mapping[str, Any] | None:
        """Take the lock and return its document, or None if another host holds it."""
        lock = {"id": self._prefix + INITIALIZATION_LOCK, "ttl": LOCK_TTL_S}
        try:
            return await self._container.create_item(self._with_partition_key(lock))
        except CosmosResourceExistsError:
            return None

    async def _release_lock(self, lock: Mapping[str, Any]) -> None:
        try:
            await self._container.delete_item(
                lock["id"],
                partition_key=lock["id"],
                etag=lock["_etag"],
                match_condition=MatchConditions.IfNotModified,
            )
        except (CosmosResourceNotFoundError, CosmosAccessConditionFailedError):
            return  # It has expired, and another host may hold it now.

    async def _create_missing(self, ranges: Sequence[PartitionRange]) -> None:
        """Create the leases of partitions that have none, as PartitionSynchronizerCore.CreateLeasesAsync.

        A lease by range at either end of a partition means that others cover the rest of it. Since SDK 3.63.1, the
        lease of a partition that has a parent's lease is left to the division of that one.
        """
        partitions = [lease.partition for lease in await self.all()]
        present = {each.id for each in partitions if not each.is_part}
        ends = {("from", each.minimum) for each in partitions if each.is_part}
        ends |= {("to", each.maximum) for each in partitions if each.is_part}
        for each in ranges:
            is_covered = each.id in present or each.parents & present
            if not is_covered and not ends & {("from", each.minimum), ("to", each.maximum)}:
                await self._create(self._new_document(each))

    async def _create(self, document: dict[str, Any]) -> Mapping[str, Any] | None:
        """Return the document as stored, or None if another host has created it."""
        try:
            return await self._container.create_item(self._with_partition_key(document))
        except CosmosResourceExistsError:
            return None

    def _new_document(self, partition_range: PartitionRange) -> dict[str, Any]:
        return {
            "id": self._prefix + PREFIX_SEPARATOR + partition_range.id,
            **_identity(partition_range),
            "Owner": None,
            "ContinuationToken": None,
            "properties": {},
            "Mode": _MODE,
        }

    def _partition_key_of(self, lease: Lease) -> str:
        return lease.id if self._partitioned_by_id else str(lease.document["partitionKey"])

    def _with_partition_key(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with its partition key.

        A lease container partitioned by /partitionKey, which Gremlin accounts need, has the id there too.
        """
        return document if self._partitioned_by_id else {**document, "partitionKey": document["id"]}
