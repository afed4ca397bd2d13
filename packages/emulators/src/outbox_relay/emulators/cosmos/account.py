"""The state of an account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outbox_relay.emulators.cosmos.catalog import Catalog
from outbox_relay.emulators.cosmos.changefeed import ChangeFeed
from outbox_relay.emulators.cosmos.clock import Clock
from outbox_relay.emulators.cosmos.containers import Container, Database
from outbox_relay.emulators.cosmos.edges import Edge, Edges
from outbox_relay.emulators.cosmos.errors import (
    COLLECTION_RID_MISMATCH,
    PARTITION_KEY_RANGE_GONE,
    BadRequest,
    Gone,
)
from outbox_relay.emulators.cosmos.items import Items
from outbox_relay.emulators.cosmos.messages import Request
from outbox_relay.emulators.cosmos.offers import RU_PER_PARTITION, Offers, Throughput
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.repartitioning import merge_partitions, split_partition
from outbox_relay.emulators.cosmos.sessions import SessionNotAvailable, check_session
from outbox_relay.emulators.cosmos.storage import NOT_EXPIRED, Storage
from outbox_relay.emulators.recording import Recording


class Account:
    """The parts of an account, which share one storage and one clock."""

    def __init__(
        self,
        database: str | Path,
        clock: Clock,
        physical_partitions: int,
        edges: Edges,
        ru_per_partition: int = RU_PER_PARTITION,
        recording: Recording | None = None,
    ) -> None:
        self.clock = clock
        self._ru_per_partition = ru_per_partition
        self.storage = Storage(database)
        self.catalog = Catalog(self.storage, clock, physical_partitions)
        self.edges = edges
        self.items = Items(self.storage, clock, edges, recording)
        self.feed = ChangeFeed(self.storage, clock, edges)
        self.offers = Offers(self.storage, clock)

    def container_of(self, request: Request) -> Container:
        """Return the container that a request names.

        Raises BadRequest if the client means one that was deleted since.
        """
        container = self.catalog.container(request.segments[1], request.segments[3])
        intended = request.headers.get("x-ms-cosmos-intended-collection-rid")
        if intended and intended != container.rid:
            raise BadRequest(
                f"The collection rid '{intended}' is not that of this container; it was created anew.",
                COLLECTION_RID_MISMATCH,
            )
        return container

    def create_container(
        self, database: Database, definition: Mapping[str, Any], throughput: Throughput | None
    ) -> Container:
        """Create a container. Without throughput it shares that of its database. Raises BadRequest or Conflict."""
        partitions = 0 if throughput is None else throughput.initial_partitions(self._ru_per_partition)
        container = self.catalog.create_container(database, definition, partitions)
        if throughput is not None:
            self.offers.create(container.rid, container.self_link, throughput)
        return container

    def replace_throughput(self, offer_id: str, throughput: Throughput) -> dict[str, Any]:
        """Change an offer, and split its container's partitions until they can serve it. Raises NotFound.

        Source: https://learn.microsoft.com/azure/cosmos-db/scaling-provisioned-throughput-best-practices.
        """
        offer = self.offers.replace(offer_id, throughput)
        container = self.catalog.container_by_link(offer["resource"])
        if container is not None:
            while len(container.partitions) < throughput.partitions(self._ru_per_partition):
                self._split(container, min(container.partitions, key=lambda each: len(each.parents)))
        return offer

    def check_session(self, request: Request, partition: Partition) -> None:
        """Raise SessionNotAvailable if the session token is ahead of the partition, BadRequest if malformed."""
        try:
            check_session(request.headers, partition)
        except SessionNotAvailable:
            self.edges.met(Edge.SESSION_TOKEN_AHEAD)
            raise

    def item_id_of(self, request: Request, container: Container) -> str:
        """Return the id of the item that a path names: by id, or also by rid if the container is named by rid."""
        name = request.segments[5]
        if request.segments[3] == container.rid and (found := self.items.id_of(container, name)):
            return found
        return name

    def delete_database(self, database: Database) -> None:
        """Delete a database with its containers, their items and their throughput."""
        self.offers.forget(database.self_link)
        for container in database.containers.values():
            self.offers.forget(container.self_link)
        self.catalog.delete_database(database)

    def counts(self) -> dict[str, dict[str, int]]:
        """Count the items that have not expired, by database and container."""
        return {
            database.id: {container.id: self.count(container) for container in database.containers.values()}
            for database in self.catalog.databases.values()
        }

    def count(self, container: Container) -> int:
        counts = (
            self.storage.execute(
                f"SELECT count(*) FROM items WHERE partition=:partition AND {NOT_EXPIRED}",
                {"partition": partition.number, "now": self.clock.seconds()},
            ).fetchone()[0]
            for partition in container.partitions
        )
        return sum(counts)

    def split(self, database: str, container: str, range_id: str) -> dict[str, Any]:
        """Split a physical partition; returns its id and its children's. Raises NotFound, Gone or BadRequest."""
        found = self.catalog.container(database, container)
        partition = partition_by_id(found, range_id)
        children = self._split(found, partition)
        return {"split": partition.id, "into": [child.id for child in children]}

    def merge(self, database: str, container: str, range_ids: Sequence[str]) -> dict[str, Any]:
        """Merge two physical partitions that are next to each other, given in the order of their keys.

        Returns their ids and that of the one in their place. Raises NotFound, Gone or BadRequest.
        """
        found = self.catalog.container(database, container)
        first, second = (partition_by_id(found, range_id) for range_id in range_ids)
        merged = merge_partitions(self.storage, found, first, second)
        self.edges.met(Edge.PARTITION_MERGED)
        return {"merged": [first.id, second.id], "into": merged.id}

    def _split(self, container: Container, partition: Partition) -> list[Partition]:
        children = split_partition(self.storage, container, partition)
        self.edges.met(Edge.PARTITION_SPLIT)
        return children

    def close(self) -> None:
        self.storage.close()


def partition_by_id(container: Container, range_id: str) -> Partition:
    """Return a physical partition by its partition key range id, with or without the container's rid.

    Raises Gone.
    """
    wanted = range_id.rpartition(",")[2].strip()
    for partition in container.partitions:
        if partition.id == wanted:
            return partition
    raise Gone(f"The partition key range '{range_id}' does not exist.", PARTITION_KEY_RANGE_GONE)
