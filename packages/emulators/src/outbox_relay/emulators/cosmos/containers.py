"""Databases and containers, as they are kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from outbox_relay.emulators.cosmos.documents import resource_id
from outbox_relay.emulators.cosmos.partitioning import KeyRange, PartitionKeyDefinition, locate
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.unique_keys import UniqueKey


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
    ttl_path: tuple[str, ...] | None
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
        return f"{self.database.path}/colls/{self.id}"

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
    def path(self) -> str:
        return f"dbs/{self.id}"

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
