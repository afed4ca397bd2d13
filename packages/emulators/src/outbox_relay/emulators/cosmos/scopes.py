"""The part of a container that a feed or a query reads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outbox_relay.emulators.cosmos.account import partition_by_id
from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.messages import Request
from outbox_relay.emulators.cosmos.partitioning import KeyRange, PartitionKey
from outbox_relay.emulators.cosmos.physical_partitions import Partition


@dataclass(frozen=True, slots=True)
class ReadScope:
    """A whole container, a physical partition, or a key range or logical partition within one."""

    partition: Partition | None = None
    key_range: KeyRange | None = None
    key: PartitionKey | None = None

    @classmethod
    def of_request(cls, container: Container, request: Request) -> ReadScope:
        """Return the scope that the headers name.

        Raises BadRequest for a malformed key, Gone for a missing partition.
        """
        headers = request.headers
        if header := headers.get("x-ms-documentdb-partitionkey"):
            return cls.of_key(container, container.partition_key.of_header(header))
        key_range = None
        if headers.get("x-ms-read-key-type") == "EffectivePartitionKeyRange":
            key_range = KeyRange(headers.get("x-ms-start-epk", ""), headers.get("x-ms-end-epk", "FF"))
        range_id = headers.get("x-ms-documentdb-partitionkeyrangeid")
        return cls(partition_by_id(container, range_id) if range_id else None, key_range)

    @classmethod
    def of_key(cls, container: Container, key: PartitionKey) -> ReadScope:
        return cls(container.partition_of(key.effective), KeyRange.of_key(key), key)


def scope_in_query(container: Container, required: Mapping[tuple[str, ...], Any]) -> ReadScope | None:
    """Return the one logical partition that a query's WHERE clause names by equality, or all below it."""
    definition = container.partition_key
    values = [required[path] for path in itertools.takewhile(required.__contains__, definition.paths)]
    if not values:
        return None
    key = definition.of_values(values)
    if len(values) == len(definition.paths):
        return ReadScope.of_key(container, key)
    return ReadScope(container.partition_of(key.effective), KeyRange.below(key))
