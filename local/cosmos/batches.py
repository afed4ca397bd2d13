"""Transactional batches: up to a hundred operations on one logical partition, all at one LSN, or none of them.

Source: https://learn.microsoft.com/azure/cosmos-db/transactional-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from local.cosmos import jsontext, operations
from local.cosmos.catalog import Container
from local.cosmos.documents import MAX_ITEM_BYTES, Document, Item, check_id
from local.cosmos.errors import BadRequest, CosmosError, TooLarge
from local.cosmos.items import Commit, Items
from local.cosmos.operations import Outcome, Precondition
from local.cosmos.partitioning import PartitionKey

MAX_OPERATIONS = 100
MAX_BATCH_BYTES = MAX_ITEM_BYTES
_FAILED_DEPENDENCY = '{"statusCode":424,"requestCharge":0.0}'

Condition = Callable[[object, Item], bool]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The answer to a batch: 200, or 207 where it failed; `outcomes` as a JSON text."""

    status: int
    text: str
    charge: float


@dataclass(frozen=True, slots=True)
class BatchOperation:
    """One operation, as the client describes it."""

    kind: str
    item_id: str | None
    body: jsontext.Part | None
    precondition: Precondition

    @classmethod
    def of(cls, part: jsontext.Part) -> BatchOperation:
        if not isinstance(part.value, dict):
            raise BadRequest("Every operation of a batch has to be a JSON object.")
        members = jsontext.members(part.text)
        return cls(
            kind=str(part.value.get("operationType")),
            item_id=part.value.get("id"),
            body=members.get("resourceBody"),
            precondition=Precondition(part.value.get("ifMatch"), part.value.get("ifNoneMatch")),
        )


class _OperationFailed(Exception):
    """Rolls the commit back, and remembers who is to blame."""

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
    """Run a batch; a result with status 207 where an operation failed."""
    try:
        outcomes = _run(items, container, key, requested, holds)
    except _OperationFailed as failure:
        return _failed(failure, len(requested))
    texts = [_render(outcome, container, with_bodies=with_bodies) for outcome in outcomes]
    return BatchResult(200, f"[{','.join(texts)}]", round(sum(outcome.charge for outcome in outcomes), 2))


def parse_batch(body: bytes) -> list[BatchOperation]:
    """The operations of a batch; BadRequest or TooLarge where it is none."""
    if len(body) > MAX_BATCH_BYTES:
        raise TooLarge()
    part = jsontext.parse(jsontext.decode(body))
    if not isinstance(part.value, list):
        raise BadRequest("A batch has to be a JSON array of operations.")
    if not part.value:
        raise BadRequest("Batch request has no operations.")
    if len(part.value) > MAX_OPERATIONS:
        raise BadRequest("Batch request has more operations than what is supported.")
    return [BatchOperation.of(element) for element in jsontext.elements(part.text)]


def _run(
    items: Items, container: Container, key: PartitionKey, requested: list[BatchOperation], holds: Condition
) -> list[Outcome]:
    outcomes = []
    with items.commit(container, key, len(requested)) as commit:
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


def _render(outcome: Outcome, container: Container, *, with_bodies: bool) -> str:
    head = f'{{"statusCode":{outcome.status},"requestCharge":{outcome.charge}'
    if outcome.item is None:
        return head + "}"
    head += f',"eTag":"\\"{outcome.item.etag[1:-1]}\\""'
    if outcome.wrote and not with_bodies:
        return head + "}"
    return f'{head},"resourceBody":{outcome.item.rendered(container.raw_rid, container.self_link)}}}'


def _failed(failure: _OperationFailed, count: int) -> BatchResult:
    culprit = {
        "statusCode": failure.error.status,
        "subStatusCode": failure.error.substatus,
        "requestCharge": 1.0,
        "message": failure.error.message,
    }
    texts = [_FAILED_DEPENDENCY] * count
    texts[failure.index] = jsontext.dump(culprit)
    return BatchResult(207, f"[{','.join(texts)}]", 1.0)
