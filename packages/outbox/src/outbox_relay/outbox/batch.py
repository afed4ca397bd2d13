"""The transactional batch of one commit: a snapshot of its documents, checked against the service's limits.

Limits: https://learn.microsoft.com/azure/cosmos-db/nosql/transactional-batch#limitations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outbox_relay.outbox.data_object import DataObject, EntityState
from outbox_relay.outbox.entities import DomainEntity
from outbox_relay.outbox.errors import (
    MAX_BATCH_BYTES,
    MAX_OPERATIONS,
    BatchTooLarge,
    InvalidDocument,
    MixedPartitions,
)
from outbox_relay.outbox.events import DomainEvent
from outbox_relay.outbox.relayable import check_values

# Maximum number of partition keys in an error message.
_LISTED_KEYS = 5

SdkOperation = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One document to write. `etag` is the version it replaces, None for a document that must be new."""

    name: str
    state: EntityState
    document: dict[str, Any]
    etag: str | None

    @classmethod
    def of(cls, source: DataObject[Any]) -> Operation:
        """Return a copy, unaffected by changes to the entity while the batch is in flight."""
        return cls(source.name, source.state, _deep_copy(source.to_document(), source.name), source.etag)

    def as_sdk(self) -> SdkOperation:
        """Return a new argument for `execute_item_batch`. The SDK removes options from it."""
        if self.state is EntityState.CREATED:
            return "create", (self.document,), {}
        condition = {} if self.etag is None else {"if_match_etag": self.etag}
        return "replace", (self.document["id"], self.document), condition

    def as_sent(self) -> dict[str, Any]:
        """Return the operation as it appears in the request body, to which the size limit applies."""
        if self.state is EntityState.CREATED:
            return {"operationType": "Create", "resourceBody": self.document}
        head = {"operationType": "Replace", "id": self.document["id"], "resourceBody": self.document}
        return head if self.etag is None else {**head, "ifMatch": self.etag}


@dataclass(frozen=True, slots=True)
class Batch:
    """Operations on one logical partition, applied all or none.

    `size` is in bytes, as azure-cosmos sends them by default.
    """

    partition_key: str
    operations: tuple[Operation, ...]
    size: int
    first_event: Operation | None
    """Its id is unique to this commit, so if it is stored, the commit was applied."""

    @classmethod
    def of(cls, objects: Sequence[DataObject[Any]]) -> Batch:
        """Create a batch of at least one object, in the order given.

        Raises:
            MixedPartitions, BatchTooLarge, InvalidDocument: The batch could never be executed.
        """
        key, *others = dict.fromkeys(source.partition_key for source in objects)
        if others:
            raise _mixed_partitions((key, *others))
        _check_unique_ids(objects)
        operations = tuple(Operation.of(source) for source in objects)
        size = len(encode([operation.as_sent() for operation in operations]))
        batch = cls(key, operations, size, _first_event(objects, operations))
        batch._check_limits(objects)
        return batch

    def _check_limits(self, objects: Sequence[DataObject[Any]]) -> None:
        count = len(self.operations)
        if count <= MAX_OPERATIONS and self.size <= MAX_BATCH_BYTES:
            return
        entities = sum(isinstance(source.source, DomainEntity) for source in objects)
        raise BatchTooLarge(
            f"The commit has {count} operations ({entities} on entities, {count - entities} on events) and "
            f"{self.size} bytes; a transactional batch holds {MAX_OPERATIONS} operations and {MAX_BATCH_BYTES} "
            "bytes.",
            count,
            self.size,
        )

    @property
    def name(self) -> str:
        """The name used in messages: the first object and how many follow."""
        more = len(self.operations) - 1
        return f"the commit of {self.operations[0].name}" + (f" and {more} more" if more else "")


def encode(value: object) -> str:
    """Return JSON as azure-cosmos sends it by default: compact, in ASCII. `value` is checked by `check_values`."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _deep_copy(document: Mapping[str, Any], subject: str) -> Any:
    """Return a deep copy of a JSON document, equal to what a reader will find stored.

    Raises:
        TypeError, InvalidDocument: As `check_values`.
    """
    check_values(document, subject)
    return json.loads(encode(document))


def _first_event(objects: Sequence[DataObject[Any]], operations: Sequence[Operation]) -> Operation | None:
    pairs = zip(objects, operations, strict=True)
    return next((operation for source, operation in pairs if isinstance(source.source, DomainEvent)), None)


def _mixed_partitions(keys: tuple[str, ...]) -> MixedPartitions:
    listed = ", ".join(f"'{key}'" for key in keys[:_LISTED_KEYS]) + (
        " and more" if len(keys) > _LISTED_KEYS else ""
    )
    return MixedPartitions(
        f"The commit spans {len(keys)} partition keys ({listed}); a transactional batch has one.", keys
    )


def _check_unique_ids(objects: Sequence[DataObject[Any]]) -> None:
    seen = set()
    for source in objects:
        if source.id in seen:
            raise InvalidDocument(f"The commit has two objects with the id of {source.name}.")
        seen.add(source.id)
