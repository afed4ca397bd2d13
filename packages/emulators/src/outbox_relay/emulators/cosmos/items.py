"""The items of a container: reading one, and committing changes, each commit under one log sequence number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outbox_relay.emulators.cosmos.clock import Clock
from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.documents import (
    INDEX_BITS,
    Document,
    Item,
    expiry,
    raw_resource_id,
    start_of_life,
)
from outbox_relay.emulators.cosmos.edges import Edges
from outbox_relay.emulators.cosmos.partitioning import PartitionKey
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.replicas import Replicas
from outbox_relay.emulators.cosmos.storage import NOT_EXPIRED, Storage
from outbox_relay.emulators.cosmos.unique_keys import claim
from outbox_relay.emulators.recording import Recording, raw

ITEM_COLUMNS = "number, id, lsn, position, ts, text"

# An item's number consists of the partition's number and a counter of the items created there. So numbers never
# repeat, and a scan by number is a scan in order of creation.
_LSN_BITS = 37
_NUMBER_BITS = _LSN_BITS + INDEX_BITS


def item_numbers(partition: Partition) -> range:
    """Return the numbers that items of this partition can have; those from before a split are the lowest."""
    return range(partition.oldest << _NUMBER_BITS, partition.number + 1 << _NUMBER_BITS)


class Items:
    """Items by logical partition and id."""

    def __init__(self, storage: Storage, clock: Clock, edges: Edges, recording: Recording | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._edges = edges
        self._recording = recording
        self.replicas = Replicas(edges)

    def find(self, partition: Partition, key: PartitionKey, item_id: str) -> Item | None:
        """Find the item, or return None if there is none or it has expired."""
        row = self._storage.execute(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE partition=:partition AND pk=:pk AND id=:id AND {NOT_EXPIRED}",
            {"partition": partition.number, "pk": key.text, "id": item_id, "now": self._clock.seconds()},
        ).fetchone()
        return None if row is None else Item(*row)

    def find_at(self, partition: Partition, lsn: int, key: PartitionKey, item_id: str) -> Item | None:
        """Find the item as stored on a replica that may lag behind."""
        latest = self.find(partition, key, item_id)
        return self.replicas.item_at(partition, lsn, (key.text, item_id), latest)

    def id_of(self, container: Container, rid: str) -> str | None:
        """Return the id of the item with this `_rid`, or None."""
        raw = raw_resource_id(rid)
        if len(raw) != 16 or raw[:8] != container.raw_rid:
            return None
        number = int.from_bytes(raw[8:], "little")
        if number >= 1 << 63:
            return None
        row = self._storage.execute("SELECT id FROM items WHERE number=?", (number,)).fetchone()
        return None if row is None else str(row[0])

    def ids_in(self, partition: Partition, key: PartitionKey) -> list[str]:
        """Return the ids of all items of a logical partition."""
        rows = self._storage.execute(
            "SELECT id FROM items WHERE partition=? AND pk=? ORDER BY number", (partition.number, key.text)
        )
        return [row[0] for row in rows]

    @contextmanager
    def commit(self, container: Container, key: PartitionKey, operations: int = 1) -> Iterator[Commit]:
        """A commit to one logical partition: all of the block at one LSN or, after an exception, nothing.

        It takes as many numbers as operations if a page of the change feed may end between them.
        """
        partition = container.partition_of(key.effective)
        numbers = 1 if self._edges.seed is None else max(operations, 1)
        with self._storage.transaction():
            commit = Commit(self, self._storage, container, partition, key, self._clock.seconds(), numbers)
            yield commit
            if commit.changes:
                self._storage.execute("UPDATE partitions SET lsn=? WHERE number=?", (commit.lsn, partition.number))
        if commit.changes:
            self.replicas.committed(partition, commit.lsn, commit.replaced)
            partition.lsn = commit.lsn
            if self._recording is not None:
                self._record(self._recording, commit, partition)

    @staticmethod
    def _record(recording: Recording, commit: Commit, partition: Partition) -> None:
        recording.add(
            container=commit.container.path,
            range=partition.id,
            lsn=commit.lsn,
            key=raw(commit.key.text),
            effective=commit.key.effective,
            changes=[
                {"id": item_id, "place": place, "item": None if text is None else raw(text)}
                for item_id, place, text in commit.written
            ],
        )

    def remove_expired(self, limit: int) -> int:
        """Delete up to `limit` expired items; returns how many."""
        cursor = self._storage.execute(
            "DELETE FROM items WHERE number IN (SELECT number FROM items WHERE expires <= ? LIMIT ?)",
            (self._clock.seconds(), limit),
        )
        return cursor.rowcount


class Commit:
    """The changes of a commit to one logical partition."""

    def __init__(
        self,
        items: Items,
        storage: Storage,
        container: Container,
        partition: Partition,
        key: PartitionKey,
        ts: int,
        numbers: int,
    ) -> None:
        self._items = items
        self._storage = storage
        self._partition = partition
        self.container = container
        self.key = key
        self.lsn = partition.lsn + numbers
        self._numbers_beyond_one = numbers - 1
        self.ts = ts
        self.changes = 0
        self.replaced: dict[tuple[str, str], Item | None] = {}
        """The items before the commit, by logical partition and id."""
        self.written: list[tuple[str, int, str | None]] = []
        """Id and place in the change feed of each change, and the text of the item; None if it was deleted."""

    def find(self, item_id: str) -> Item | None:
        return self._items.find(self._partition, self.key, item_id)

    def insert(self, document: Document) -> Item:
        """Store an item whose id is not in use."""
        self._note_before(document.id, None)
        position = self._next_position()
        index = position & (1 << INDEX_BITS) - 1
        number = (self._partition.number << _NUMBER_BITS) + (self.lsn << INDEX_BITS) + index
        self._storage.execute(
            "INSERT OR REPLACE INTO items(number, partition, pk, id, epk, lsn, position, ts, expires, text) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                self._partition.number,
                self.key.text,
                document.id,
                self.key.effective,
                self.lsn,
                position,
                self.ts,
                self._expiry(document),
                document.text,
            ),
        )
        self._claim_unique_values(number, document)
        return self._wrote(Item(number, document.id, self.lsn, position, self.ts, document.text))

    def update(self, existing: Item, document: Document) -> Item:
        """Store a new version of an item."""
        self._note_before(existing.id, existing)
        self._note_before(document.id, None)
        position = self._next_position()
        self._storage.execute(
            "UPDATE OR REPLACE items SET id=?, lsn=?, position=?, ts=?, expires=?, text=? WHERE number=?",
            (document.id, self.lsn, position, self.ts, self._expiry(document), document.text, existing.number),
        )
        self._claim_unique_values(existing.number, document)
        return self._wrote(Item(existing.number, document.id, self.lsn, position, self.ts, document.text))

    def delete(self, existing: Item) -> None:
        self._note_before(existing.id, existing)
        self._next_position()
        self._storage.execute("DELETE FROM items WHERE number=?", (existing.number,))
        self.written.append((existing.id, self.lsn, None))

    def _wrote(self, item: Item) -> Item:
        self.written.append((item.id, item.place, item.text))
        return item

    def _note_before(self, item_id: str, before: Item | None) -> None:
        self.replaced.setdefault((self.key.text, item_id), before)

    def _next_position(self) -> int:
        index = self.changes
        self.changes += 1
        return self._numbers_beyond_one << INDEX_BITS | index

    def _claim_unique_values(self, number: int, document: Document) -> None:
        if self.container.unique_keys:
            place = self._partition.number, self.key.text
            claim(self._storage, self.container.unique_keys, place, number, document.value, self.ts)

    def _expiry(self, document: Document) -> int | None:
        start = start_of_life(document.value, self.ts, self.container.ttl_path)
        return expiry(start, document.ttl, self.container.default_ttl)
