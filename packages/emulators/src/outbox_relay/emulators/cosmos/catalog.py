"""The databases and containers of an account: kept in memory, written through to storage."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from typing import Any

from outbox_relay.emulators.cosmos.clock import Clock
from outbox_relay.emulators.cosmos.container_definition import (
    default_ttl_of,
    normalised_definition,
    replaced_definition,
    ttl_path_of,
)
from outbox_relay.emulators.cosmos.containers import Container, Database
from outbox_relay.emulators.cosmos.documents import expiry, start_of_life
from outbox_relay.emulators.cosmos.errors import BadRequest, Conflict, NotFound
from outbox_relay.emulators.cosmos.partitioning import PartitionKeyDefinition
from outbox_relay.emulators.cosmos.repartitioning import stored_partitions
from outbox_relay.emulators.cosmos.storage import Storage
from outbox_relay.emulators.cosmos.unique_keys import unique_keys_of

_ILLEGAL_IN_NAME = frozenset("/\\?#")
_MAX_NAME_LENGTH = 255
_CONTAINER_BIT = 0x80


def new_raw_rid(parent: bytes, taken: Collection[bytes]) -> bytes:
    """Return a unique `_rid`: four bytes for a database, and four more with the first bit set for a container.

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


def check_name(name: object) -> str:
    """Return an id that a database or container may have. Raises BadRequest."""
    if not isinstance(name, str) or not name.strip():
        raise BadRequest("The input content is invalid because the required properties - 'id; ' - are missing.")
    if len(name) > _MAX_NAME_LENGTH or not _is_unicode(name):
        raise BadRequest(
            f"The input name '{name}' is invalid. Ensure to provide a unique non-empty string less than "
            f"'{_MAX_NAME_LENGTH}' characters."
        )
    if not _ILLEGAL_IN_NAME.isdisjoint(name) or name.endswith(" "):
        raise BadRequest(f"The input name '{name}' is invalid: no '/', '\\', '?' or '#', and no blank at its end.")
    return name


def _is_unicode(name: str) -> bool:
    """Return True if the name has no half of a surrogate pair, which JSON can spell."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
            raise NotFound(sought=f"database '{name}'")
        return found

    def container(self, database: str, name: str) -> Container:
        """Find a container by ids or rids. Raises NotFound."""
        containers = self.database(database).containers
        found = containers.get(name)
        if found is None:
            found = next((each for each in containers.values() if each.rid == name), None)
        if found is None:
            raise NotFound(sought=f"container '{name}' in database '{database}'")
        return found

    def container_by_link(self, self_link: str) -> Container | None:
        """Return the container with this self link, or None."""
        found = (each for database in self.databases.values() for each in database.containers.values())
        return next((each for each in found if each.self_link == self_link), None)

    def create_database(self, name: object) -> Database:
        """Create a database. Raises BadRequest or Conflict."""
        checked = check_name(name)
        if checked in self.databases:
            raise Conflict(f"Database '{checked}' already exists.")
        raw_rid = new_raw_rid(b"", {each.raw_rid for each in self.databases.values()})
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
        """Create a container with as many physical partitions as the account gives, or more.

        Raises BadRequest or Conflict.
        """
        name = check_name(requested.get("id"))
        definition = normalised_definition(name, requested)
        if name in database.containers:
            raise Conflict(f"Container '{name}' already exists.")
        raw_rid = new_raw_rid(database.raw_rid, {each.raw_rid for each in database.containers.values()})
        now = self._clock.seconds()
        with self._storage.transaction():
            number = self._storage.insert(
                "INSERT INTO containers(database_id, id, rid, ts, version, definition) VALUES(?, ?, ?, ?, 0, ?)",
                (database.id, name, raw_rid, now, json.dumps(definition)),
            )
            for _ in range(max(self._physical_partitions, physical_partitions)):
                self._storage.insert("INSERT INTO partitions(container, lsn) VALUES(?, 0)", (number,))
        return self._add(database, number, name, raw_rid, now, 0, definition)

    def replace_container(self, container: Container, requested: Mapping[str, Any]) -> None:
        """Change the TTL or the indexing policy. Raises BadRequest for any other change."""
        definition = replaced_definition(container.definition, requested)
        default_ttl, ttl_path = default_ttl_of(definition), ttl_path_of(definition)
        now, version = self._clock.seconds(), container.version + 1
        with self._storage.transaction():
            self._storage.execute(
                "UPDATE containers SET definition=?, ts=?, version=? WHERE number=?",
                (json.dumps(definition), now, version, container.number),
            )
            if (default_ttl, ttl_path) != (container.default_ttl, container.ttl_path):
                self._reschedule_expiry(container, default_ttl, ttl_path)
        container.definition, container.default_ttl, container.ttl_path = definition, default_ttl, ttl_path
        container.ts, container.version = now, version

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

    def _reschedule_expiry(
        self, container: Container, default_ttl: int | None, ttl_path: tuple[str, ...] | None
    ) -> None:
        for partition in container.partitions:
            rows = self._storage.execute(
                "SELECT number, ts, text FROM items WHERE partition=?", (partition.number,)
            ).fetchall()
            for number, ts, text in rows:
                document = json.loads(text)
                start = start_of_life(document, ts, ttl_path)
                self._storage.execute(
                    "UPDATE items SET expires=? WHERE number=?",
                    (expiry(start, document.get("ttl"), default_ttl), number),
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
            partitions=stored_partitions(self._storage, number, partition_key),
            default_ttl=default_ttl_of(definition),
            ttl_path=ttl_path_of(definition),
            unique_keys=unique_keys_of(definition),
        )
        database.containers[name] = container
        return container
