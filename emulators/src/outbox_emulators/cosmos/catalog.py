"""Databases, containers and their physical partitions: kept in memory, written through to storage."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from outbox_emulators.cosmos.clock import Clock
from outbox_emulators.cosmos.container_definition import default_ttl_of, normalised_definition, replaced_definition
from outbox_emulators.cosmos.documents import expiry, resource_id
from outbox_emulators.cosmos.errors import BadRequest, Conflict, NotFound
from outbox_emulators.cosmos.partitioning import KeyRange, PartitionKeyDefinition, locate
from outbox_emulators.cosmos.physical_partitions import MERGE, Partition, children_of, merged, replacing, replayed
from outbox_emulators.cosmos.storage import Storage
from outbox_emulators.cosmos.unique_keys import UniqueKey, unique_keys_of

_ILLEGAL_IN_NAME = frozenset("/\\?#")
_MAX_NAME_LENGTH = 255
_CONTAINER_BIT = 0x80


@dataclass(slots=True)
class Container:
    number: int
    id: str
    database: Database
    raw_rid: bytes
    ts: int
    version: int
    definition: dict[str, Any]
    partition_key: PartitionKeyDefinition
    partitions: list[Partition]
    default_ttl: int | None
    unique_keys: list[UniqueKey]
    rid: str = field(init=False)
    self_link: str = field(init=False)
    _ranges: list[KeyRange] = field(init=False)

    def __post_init__(self) -> None:
        self.rid = resource_id(self.raw_rid)
        self.self_link = f"{self.database.self_link}colls/{self.rid}/"
        self.arrange(self.partitions)

    def arrange(self, partitions: list[Partition]) -> None:
        """Set the physical partitions, in the order of their keys."""
        self.partitions = partitions
        self._ranges = [partition.key_range for partition in partitions]

    @property
    def path(self) -> str:
        return f"dbs/{self.database.id}/colls/{self.id}"

    @property
    def etag(self) -> str:
        return f'"{self.number:08x}-{self.version:04x}-0000-0000-{self.ts:08x}0000"'

    def partition_of(self, effective: str) -> Partition:
        return self.partitions[locate(self._ranges, effective)]

    def rendered(self) -> dict[str, Any]:
        return self.definition | {
            "_rid": self.rid,
            "_ts": self.ts,
            "_self": self.self_link,
            "_etag": self.etag,
            "_docs": "docs/",
            "_sprocs": "sprocs/",
            "_triggers": "triggers/",
            "_udfs": "udfs/",
            "_conflicts": "conflicts/",
        }


@dataclass(slots=True)
class Database:
    id: str
    raw_rid: bytes
    ts: int
    containers: dict[str, Container] = field(default_factory=dict)
    rid: str = field(init=False)
    self_link: str = field(init=False)

    def __post_init__(self) -> None:
        self.rid = resource_id(self.raw_rid)
        self.self_link = f"dbs/{self.rid}/"

    @property
    def etag(self) -> str:
        return f'"{self.raw_rid.hex()}-0000-0000-0000-{self.ts:08x}0000"'

    def rendered(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "_rid": self.rid,
            "_self": self.self_link,
            "_etag": self.etag,
            "_colls": "colls/",
            "_users": "users/",
            "_ts": self.ts,
        }


class Catalog:
    """The databases of an account, by name."""

    def __init__(self, storage: Storage, clock: Clock, physical_partitions: int) -> None:
        self._storage = storage
        self._clock = clock
        self._physical_partitions = physical_partitions
        self.databases: dict[str, Database] = {}
        self._load()

    def database(self, name: str) -> Database:
        """Find a database by id or rid. Raises NotFound."""
        found = self.databases.get(name)
        if found is None:
            found = next((each for each in self.databases.values() if each.rid == name), None)
        if found is None:
            raise NotFound(f"Resource Not Found: no database '{name}'.")
        return found

    def container(self, database: str, name: str) -> Container:
        """Find a container by ids or rids. Raises NotFound."""
        containers = self.database(database).containers
        found = containers.get(name)
        if found is None:
            found = next((each for each in containers.values() if each.rid == name), None)
        if found is None:
            raise NotFound(f"Resource Not Found: no container '{name}' in database '{database}'.")
        return found

    def container_by_link(self, self_link: str) -> Container | None:
        """The container with this self link, or None."""
        found = (each for database in self.databases.values() for each in database.containers.values())
        return next((each for each in found if each.self_link == self_link), None)

    def create_database(self, name: object) -> Database:
        """Raises BadRequest or Conflict."""
        checked = _check_name(name)
        if checked in self.databases:
            raise Conflict(f"Database '{checked}' already exists.")
        raw_rid = _new_raw_rid(b"", {each.raw_rid for each in self.databases.values()})
        database = Database(checked, raw_rid, self._clock.seconds())
        self._storage.execute(
            "INSERT INTO databases(id, rid, ts) VALUES(?, ?, ?)", (database.id, database.raw_rid, database.ts)
        )
        self.databases[database.id] = database
        return database

    def delete_database(self, database: Database) -> None:
        with self._storage.transaction():
            for container in database.containers.values():
                self._delete_rows(container)
            self._storage.execute("DELETE FROM databases WHERE id=?", (database.id,))
        del self.databases[database.id]

    def create_container(
        self, database: Database, requested: Mapping[str, Any], physical_partitions: int = 0
    ) -> Container:
        """With as many physical partitions as the account gives, or more. Raises BadRequest or Conflict."""
        name = _check_name(requested.get("id"))
        definition = normalised_definition(name, requested)
        if name in database.containers:
            raise Conflict(f"Container '{name}' already exists.")
        raw_rid = _new_raw_rid(database.raw_rid, {each.raw_rid for each in database.containers.values()})
        now = self._clock.seconds()
        with self._storage.transaction():
            number = self._insert(
                "INSERT INTO containers(database_id, id, rid, ts, version, definition) VALUES(?, ?, ?, ?, 0, ?)",
                (database.id, name, raw_rid, now, json.dumps(definition)),
            )
            for _ in range(max(self._physical_partitions, physical_partitions)):
                self._insert("INSERT INTO partitions(container, lsn) VALUES(?, 0)", (number,))
        return self._add(database, number, name, raw_rid, now, 0, definition)

    def replace_container(self, container: Container, requested: Mapping[str, Any]) -> None:
        """Change the TTL or the indexing policy. Raises BadRequest for any other change."""
        definition = replaced_definition(container.definition, requested)
        default_ttl = default_ttl_of(definition)
        now, version = self._clock.seconds(), container.version + 1
        with self._storage.transaction():
            self._storage.execute(
                "UPDATE containers SET definition=?, ts=?, version=? WHERE number=?",
                (json.dumps(definition), now, version, container.number),
            )
            if default_ttl != container.default_ttl:
                self._reschedule_expiry(container, default_ttl)
        container.definition, container.default_ttl = definition, default_ttl
        container.ts, container.version = now, version

    def split_partition(self, container: Container, partition: Partition) -> list[Partition]:
        """Replace a partition by two. Each gets its LSN, and the items of half of its keys."""
        cut = container.partition_key.middle(partition.key_range)
        next_index = 1 + max(each.index for each in container.partitions)
        with self._storage.transaction():
            self._insert(
                "INSERT INTO splits(container, partition, cut) VALUES(?, ?, ?)",
                (container.number, partition.number, cut),
            )
            numbers = [
                self._insert(
                    "INSERT INTO partitions(container, lsn) VALUES(?, ?)", (container.number, partition.lsn)
                )
                for _ in range(2)
            ]
            children = children_of(partition, cut, numbers, [partition.lsn] * 2, next_index)
            for child in children:
                self._move_items(partition, child)
        container.arrange(replacing(container.partitions, [partition], children))
        return children

    def merge_partitions(self, container: Container, first: Partition, second: Partition) -> Partition:
        """Replace two partitions by one with all of their items. Raises BadRequest unless the second is next.

        Items keep their LSNs, so that readers of either go on where they stood; the next commit's is above both.
        """
        if first.key_range.maximum != second.key_range.minimum:
            raise BadRequest(f"The partitions '{first.id}' and '{second.id}' are not next to each other.")
        next_index = 1 + max(each.index for each in container.partitions)
        lsn = max(first.lsn, second.lsn)
        with self._storage.transaction():
            self._insert(
                "INSERT INTO splits(container, partition, cut) VALUES(?, ?, ?)",
                (container.number, first.number, MERGE),
            )
            number = self._insert("INSERT INTO partitions(container, lsn) VALUES(?, ?)", (container.number, lsn))
            one = merged(first, second, number, lsn, next_index)
            for partition in (first, second):
                self._move_items(partition, one)
        container.arrange(replacing(container.partitions, [first, second], [one]))
        return one

    def _move_items(self, partition: Partition, child: Partition) -> None:
        values = {
            "parent": partition.number,
            "child": child.number,
            "minimum": child.key_range.minimum,
            "maximum": child.key_range.maximum,
        }
        self._storage.execute(
            "UPDATE unique_values SET partition=:child WHERE partition=:parent AND number IN "
            "(SELECT number FROM items WHERE partition=:parent AND epk>=:minimum AND epk<:maximum)",
            values,
        )
        self._storage.execute(
            "UPDATE items SET partition=:child WHERE partition=:parent AND epk>=:minimum AND epk<:maximum", values
        )

    def delete_container(self, container: Container) -> None:
        with self._storage.transaction():
            self._delete_rows(container)
        del container.database.containers[container.id]

    def _delete_rows(self, container: Container) -> None:
        for partition in container.partitions:
            self._storage.execute("DELETE FROM items WHERE partition=?", (partition.number,))
        self._storage.execute("DELETE FROM partitions WHERE container=?", (container.number,))
        self._storage.execute("DELETE FROM splits WHERE container=?", (container.number,))
        self._storage.execute("DELETE FROM containers WHERE number=?", (container.number,))

    def _reschedule_expiry(self, container: Container, default_ttl: int | None) -> None:
        for partition in container.partitions:
            rows = self._storage.execute(
                "SELECT number, ts, json_extract(text, '$.ttl') FROM items WHERE partition=?", (partition.number,)
            ).fetchall()
            for number, ts, ttl in rows:
                self._storage.execute(
                    "UPDATE items SET expires=? WHERE number=?", (expiry(ts, ttl, default_ttl), number)
                )

    def _load(self) -> None:
        for name, raw_rid, ts in self._storage.execute("SELECT id, rid, ts FROM databases ORDER BY rowid"):
            self.databases[name] = Database(name, raw_rid, ts)
        containers = self._storage.execute(
            "SELECT database_id, number, id, rid, ts, version, definition FROM containers ORDER BY number"
        ).fetchall()
        for database, number, name, raw_rid, ts, version, definition in containers:
            self._add(self.databases[database], number, name, raw_rid, ts, version, json.loads(definition))

    def _add(
        self,
        database: Database,
        number: int,
        name: str,
        raw_rid: bytes,
        ts: int,
        version: int,
        definition: dict[str, Any],
    ) -> Container:
        partition_key = PartitionKeyDefinition.from_json(definition["partitionKey"])
        container = Container(
            number=number,
            id=name,
            database=database,
            raw_rid=raw_rid,
            ts=ts,
            version=version,
            definition=definition,
            partition_key=partition_key,
            partitions=self._partitions(number, partition_key),
            default_ttl=default_ttl_of(definition),
            unique_keys=unique_keys_of(definition),
        )
        database.containers[name] = container
        return container

    def _partitions(self, container: int, partition_key: PartitionKeyDefinition) -> list[Partition]:
        """The physical partitions of a container: the initial ones, and every split and merge applied to them."""
        rows = self._storage.execute(
            "SELECT number, lsn FROM partitions WHERE container=? ORDER BY number", (container,)
        ).fetchall()
        splits = self._storage.execute(
            "SELECT partition, cut FROM splits WHERE container=? ORDER BY number", (container,)
        ).fetchall()
        return replayed(partition_key, rows, splits)

    def _insert(self, statement: str, values: tuple[object, ...]) -> int:
        number = self._storage.execute(statement, values).lastrowid
        assert number is not None
        return number


def _new_raw_rid(parent: bytes, taken: Collection[bytes]) -> bytes:
    """A unique `_rid`: four bytes for a database, and four more with the first bit set for a container.

    Without that bit clients mistake a container for a user, and request the key ranges of a database
    (ResourceId.cs in azure-cosmos-dotnet-v3).
    """
    while True:
        tail = bytearray(secrets.token_bytes(4))
        if parent:
            tail[0] |= _CONTAINER_BIT
        raw_rid = parent + tail
        if raw_rid not in taken and any(tail):
            return raw_rid


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise BadRequest("The input content is invalid because the required properties - 'id; ' - are missing.")
    if len(name) > _MAX_NAME_LENGTH:
        raise BadRequest(
            f"The input name '{name}' is invalid. Ensure to provide a unique non-empty string less than "
            f"'{_MAX_NAME_LENGTH}' characters."
        )
    if not _ILLEGAL_IN_NAME.isdisjoint(name) or name.endswith(" "):
        raise BadRequest(f"The input name '{name}' is invalid: no '/', '\\', '?' or '#', and no blank at its end.")
    return name
