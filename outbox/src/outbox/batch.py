"""The transactional batch: what one commit sends, fixed at that moment and checked against the service's limits.

Limits: https://learn.microsoft.com/azure/cosmos-db/nosql/transactional-batch#limitations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outbox.data_object import DataObject, EntityState
from outbox.entities import DomainEntity
from outbox.errors import (
    MAX_BATCH_BYTES,
    MAX_OPERATIONS,
    BatchTooLarge,
    InvalidDocument,
    MixedPartitions,
)
from outbox.events import DomainEvent
from outbox.payload import copied, encode
from outbox.relayable import check_values

# Of the partition keys in a message.
_NAMED = 5

SdkOperation = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One document to write; `etag` is the version it replaces, None where it must be new."""

    name: str
    state: EntityState
    document: dict[str, Any]
    etag: str | None

    @classmethod
    def of(cls, source: DataObject[Any]) -> Operation:
        """A copy that nothing changes any more, whatever becomes of the entity while the batch is under way."""
        document = copied(source.to_document(), source.name)
        check_values(document, source.name)
        return cls(source.name, source.state, document, source.etag)

    def as_sdk(self) -> SdkOperation:
        """As `execute_item_batch` takes it; a new one each time, as the SDK takes options out of it."""
        if self.state is EntityState.CREATED:
            return "create", (self.document,), {}
        condition = {} if self.etag is None else {"if_match_etag": self.etag}
        return "replace", (self.document["id"], self.document), condition

    def as_sent(self) -> dict[str, Any]:
        """As it is in the body of the request, which is what the limit is about."""
        if self.state is EntityState.CREATED:
            return {"operationType": "Create", "resourceBody": self.document}
        head = {"operationType": "Replace", "id": self.document["id"], "resourceBody": self.document}
        return head if self.etag is None else {**head, "ifMatch": self.etag}


@dataclass(frozen=True, slots=True)
class Batch:
    """Operations on one logical partition, all of them or none; `size` in bytes as azure-cosmos sends them by
    default.
    """

    partition_key: str
    operations: tuple[Operation, ...]
    size: int
    first_event: Operation | None
    """Its id is unique to this commit, so its presence tells that the commit was done."""

    @classmethod
    def of(cls, objects: Sequence[DataObject[Any]]) -> Batch:
        """The batch of at least one object, in their order.

        Raises:
            MixedPartitions, BatchTooLarge, InvalidDocument: It could never be executed.
        """
        key, *others = dict.fromkeys(source.partition_key for source in objects)
        if others:
            raise _mixed((key, *others))
        _check_twice(objects)
        operations = tuple(Operation.of(source) for source in objects)
        size = len(encode([operation.as_sent() for operation in operations], "the commit"))
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
        """The commit as messages call it: by its first object."""
        more = len(self.operations) - 1
        return f"the commit of {self.operations[0].name}" + (f" and {more} more" if more else "")


def _first_event(objects: Sequence[DataObject[Any]], operations: Sequence[Operation]) -> Operation | None:
    pairs = zip(objects, operations, strict=True)
    return next((operation for source, operation in pairs if isinstance(source.source, DomainEvent)), None)


def _mixed(keys: tuple[str, ...]) -> MixedPartitions:
    named = ", ".join(f"'{key}'" for key in keys[:_NAMED]) + (" and more" if len(keys) > _NAMED else "")
    return MixedPartitions(
        f"The commit spans {len(keys)} partition keys ({named}); a transactional batch has one.", keys
    )


def _check_twice(objects: Sequence[DataObject[Any]]) -> None:
    seen = set()
    for source in objects:
        if source.id in seen:
            raise InvalidDocument(f"{source.name} is in the commit twice: as two objects with one id.")
        seen.add(source.id)
