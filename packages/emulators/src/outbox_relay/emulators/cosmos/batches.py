"""Transactional batches: up to a hundred operations on one logical partition, all applied at one LSN, or none.

Source: https://learn.microsoft.com/azure/cosmos-db/transactional-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from outbox_relay.emulators.cosmos import hybridrow, jsontext, operations
from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.documents import MAX_ITEM_BYTES, Document, Item, check_id
from outbox_relay.emulators.cosmos.errors import PARTITION_KEY_RANGE_GONE, BadRequest, CosmosError, Gone, TooLarge
from outbox_relay.emulators.cosmos.hybridrow import ResultRow
from outbox_relay.emulators.cosmos.items import Commit, Items
from outbox_relay.emulators.cosmos.operations import Outcome, Precondition
from outbox_relay.emulators.cosmos.partitioning import PartitionKey
from outbox_relay.emulators.cosmos.physical_partitions import Partition

MAX_OPERATIONS = 100
MAX_BATCH_BYTES = MAX_ITEM_BYTES
MAX_ANSWER_BYTES = 4 * 1024 * 1024
_FAILED_DEPENDENCY = ResultRow(424, 0, None, None, 0.0)
_FAILED = 400
_NOT_MODIFIED = 304

_T = TypeVar("_T")
Condition = Callable[[object, Item], bool]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The answer to a batch: 200 or, if an operation failed or returned 304, 207; with a result for each."""

    status: int
    rows: list[ResultRow]
    charge: float

    @property
    def text(self) -> str:
        """The answer as JSON."""
        return f"[{','.join(map(_text_of, self.rows))}]"


@dataclass(frozen=True, slots=True)
class BatchOperation:
    """One operation, as the client describes it."""

    kind: str
    item_id: str | None
    body: jsontext.Part | None
    precondition: Precondition
    key: str | None = None
    """The partition key as a JSON array, if the operation names its own."""
    wants_body: bool = True

    @classmethod
    def of(cls, part: jsontext.Part) -> BatchOperation:
        if not isinstance(part.value, dict):
            raise BadRequest("Every operation of a batch has to be a JSON object.")
        members = jsontext.members(part.text)
        return cls(
            kind=str(part.value.get("operationType")),
            item_id=part.value.get("id"),
            body=members.get("resourceBody"),
            precondition=_precondition(part.value),
            key=_text(part.value, "partitionKey"),
        )

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> BatchOperation:
        """Read an operation from the columns of a HybridRow."""
        body = _text(row, "resourceBody")
        return cls(
            kind=row["operationType"],
            item_id=row.get("id"),
            body=None if body is None else jsontext.parse(body),
            precondition=_precondition(row),
            key=_text(row, "partitionKey"),
            wants_body=not row.get("minimalReturnPreference"),
        )


def _precondition(members: Mapping[str, Any]) -> Precondition:
    return Precondition(_text(members, "ifMatch"), _text(members, "ifNoneMatch"))


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    if isinstance(value, str | None):
        return value
    raise BadRequest(f"The {name} of an operation of a batch has to be a string.")


class _OperationFailed(Exception):
    """Rolls the commit back, and says which operation failed."""

    def __init__(self, index: int, error: CosmosError) -> None:
        super().__init__(error.message)
        self.index = index
        self.error = error


def execute_batch(
    items: Items,
    container: Container,
    key: PartitionKey,
    requested: list[BatchOperation],
    holds: Condition,
    *,
    with_bodies: bool,
) -> BatchResult:
    """Run a batch; the result has status 207 if an operation failed.

    An answer that is too large is a failure of the last operation (BatchServerResponseTooLargeAsync in
    BatchSinglePartitionKeyTests.cs of azure-cosmos-dotnet-v3).
    """
    try:
        with items.commit(container, key, len(requested)) as commit:
            outcomes = _run(commit, requested, holds)
            rows = [
                _row_of(outcome, container, with_body=with_bodies and operation.wants_body)
                for operation, outcome in zip(requested, outcomes, strict=True)
            ]
            if sum(len(row.body or "") for row in rows) > MAX_ANSWER_BYTES:
                raise _OperationFailed(len(rows) - 1, TooLarge("The answer to the batch is too large."))
    except _OperationFailed as failure:
        return _failed(failure, len(requested))
    status = 207 if any(outcome.status == _NOT_MODIFIED for outcome in outcomes) else 200
    return BatchResult(status, rows, round(sum(outcome.charge for outcome in outcomes), 2))


def execute_each(
    items: Items,
    container: Container,
    partition: Partition,
    requested: list[BatchOperation],
    holds: Condition,
    *,
    goes_on: bool,
) -> BatchResult:
    """Run the operations of a bulk request one by one, each in its own logical partition.

    After one that failed the others are only run if `goes_on`. Raises Gone, before any is run, if one of them is
    for another physical partition.
    """
    rows: list[ResultRow] = []
    keys = [_key_within(container, partition, operation) for operation in requested]
    for operation, key in zip(requested, keys, strict=True):
        if rows and rows[-1].status >= _FAILED and not goes_on:
            rows.append(_FAILED_DEPENDENCY)
            continue
        rows += execute_batch(items, container, key, [operation], holds, with_bodies=True).rows
    status = 200 if all(row.status < _FAILED for row in rows) else 207
    return BatchResult(status, rows, round(sum(row.charge for row in rows), 2))


def _key_within(container: Container, partition: Partition, operation: BatchOperation) -> PartitionKey:
    key = container.partition_key.of_header(operation.key)
    if container.partition_of(key.effective) is not partition:
        raise Gone(f"The key {operation.key} is not in the partition '{partition.id}'.", PARTITION_KEY_RANGE_GONE)
    return key


def parse_batch(body: bytes) -> list[BatchOperation]:
    """Parse the operations of a batch in JSON or HybridRow. Raises BadRequest or TooLarge."""
    if len(body) > MAX_BATCH_BYTES:
        raise TooLarge()
    if hybridrow.is_rows(body):
        try:
            requested = [BatchOperation.of_row(row) for row in hybridrow.operations(body)]
        except hybridrow.InvalidRow as error:
            raise BadRequest(f"The batch is malformed: {error}.") from error
        return _check_count(requested)
    part = jsontext.parse(jsontext.decode(body))
    if not isinstance(part.value, list):
        raise BadRequest("A batch has to be a JSON array of operations.")
    return [BatchOperation.of(element) for element in _check_count(jsontext.elements(part.text))]


def _check_count(operations: list[_T]) -> list[_T]:
    if not operations:
        raise BadRequest("Batch request has no operations.")
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest("Batch request has more operations than what is supported.")
    return operations


def _run(commit: Commit, requested: list[BatchOperation], holds: Condition) -> list[Outcome]:
    outcomes = []
    for index, operation in enumerate(requested):
        try:
            outcomes.append(_apply(commit, operation, holds))
        except CosmosError as error:
            raise _OperationFailed(index, error) from error
    return outcomes


def _apply(commit: Commit, operation: BatchOperation, holds: Condition) -> Outcome:
    match operation.kind:
        case "Create":
            return operations.create(commit, _document(operation))
        case "Upsert":
            return operations.upsert(commit, _document(operation), operation.precondition)
        case "Read":
            return operations.read(commit, check_id(operation.item_id), operation.precondition)
        case "Replace":
            item_id = check_id(operation.item_id)
            return operations.replace(commit, item_id, _document(operation), operation.precondition)
        case "Patch":
            specification = None if operation.body is None else operation.body.value
            item_id = check_id(operation.item_id)
            return operations.patch(commit, item_id, specification, operation.precondition, holds)
        case "Delete":
            return operations.delete(commit, check_id(operation.item_id), operation.precondition)
    raise BadRequest(f"The operation type '{operation.kind}' is not supported in a batch.")


def _document(operation: BatchOperation) -> Document:
    if operation.body is None:
        raise BadRequest(f"{operation.kind} needs a resourceBody.")
    return Document.of(operation.body)


def _row_of(outcome: Outcome, container: Container, *, with_body: bool) -> ResultRow:
    item = outcome.item
    if item is None:
        return ResultRow(outcome.status, 0, None, None, outcome.charge)
    has_body = with_body or not outcome.wrote
    body = item.rendered(container.raw_rid, container.self_link) if has_body else None
    return ResultRow(outcome.status, 0, item.etag, body, outcome.charge)


def _failed(failure: _OperationFailed, count: int) -> BatchResult:
    error = failure.error
    rows = [_FAILED_DEPENDENCY] * count
    rows[failure.index] = ResultRow(error.status, error.substatus, None, error.message, 1.0)
    return BatchResult(207, rows, 1.0)


def _text_of(row: ResultRow) -> str:
    if row.status >= _FAILED and row.body is not None:
        return jsontext.dump(
            {
                "statusCode": row.status,
                "subStatusCode": row.substatus,
                "requestCharge": row.charge,
                "message": row.body,
            }
        )
    etag = "" if row.etag is None else f',"eTag":"\\"{row.etag[1:-1]}\\""'
    body = "" if row.body is None else f',"resourceBody":{row.body}'
    return f'{{"statusCode":{row.status},"requestCharge":{row.charge}{etag}{body}}}'
