"""Items over HTTP: one at a time, in transactional batches, and all of a logical partition at once."""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.emulators.cosmos import hybridrow, operations
from outbox_relay.emulators.cosmos.account import Account, partition_by_id
from outbox_relay.emulators.cosmos.batches import BatchResult, execute_batch, execute_each, parse_batch
from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.documents import Document, Item
from outbox_relay.emulators.cosmos.errors import BadRequest, NotFound
from outbox_relay.emulators.cosmos.items import Commit
from outbox_relay.emulators.cosmos.messages import OWNER_RID, Reply, Request, data_headers, item_reply, refused_at
from outbox_relay.emulators.cosmos.operations import Outcome
from outbox_relay.emulators.cosmos.partitioning import PartitionKey
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.query.checks import check_no_aggregate
from outbox_relay.emulators.cosmos.query.evaluation import Scope, compile_expression
from outbox_relay.emulators.cosmos.query.parsing import parse_condition
from outbox_relay.emulators.cosmos.query.subqueries import compile_subqueries
from outbox_relay.emulators.cosmos.query.values import load
from outbox_relay.emulators.cosmos.sessions import demanded_lsn


def condition_holds(condition: object, document: str) -> bool:
    """Return True if a document meets the condition. Raises BadRequest if it is not a condition."""
    if not isinstance(condition, str):
        raise BadRequest("A patch's condition has to be a string.")
    _, expression = parse_condition(condition)
    check_no_aggregate(expression)
    scope = Scope(load(document), subqueries=compile_subqueries([expression], {}))
    return compile_expression(expression, {})(scope) is True


# A body may be larger than the item that is stored: blanks, escapes, system properties.


def create_or_upsert(account: Account, request: Request) -> Reply:
    """`POST …/docs`."""
    document = _document(request)

    def apply(commit: Commit) -> Outcome:
        if request.flag("x-ms-documentdb-is-upsert"):
            return operations.upsert(commit, document, request.precondition)
        return operations.create(commit, document)

    return _change(account, request, apply)


def read(account: Account, request: Request) -> Reply:
    """`GET …/docs/{id}`."""
    container, key = _target(account, request)
    partition = container.partition_of(key.effective)
    with refused_at(container, partition):
        account.check_session(request, partition)
    lsn = account.items.replicas.choose(partition, demanded_lsn(request.headers, partition))
    with refused_at(container, partition, lsn):
        item = account.items.find_at(partition, lsn, key, account.item_id_of(request, container))
        if item is None:
            raise NotFound()
        request.precondition.check_read(item)
    return item_reply(200, container, partition, item, 1.0, lsn)


def replace(account: Account, request: Request) -> Reply:
    """`PUT …/docs/{id}`.

    A missing item is 404 even without a body (ReplaceItemStreamAsync in CosmosItemTests.cs
    of azure-cosmos-dotnet-v3).
    """
    document = _document(request) if request.body else None

    def apply(commit: Commit) -> Outcome:
        item_id = account.item_id_of(request, commit.container)
        if document is None and commit.find(item_id) is None:
            raise NotFound()
        return operations.replace(commit, item_id, document or _document(request), request.precondition)

    return _change(account, request, apply)


def patch(account: Account, request: Request) -> Reply:
    """`PATCH …/docs/{id}`."""
    specification = request.json().value

    def apply(commit: Commit) -> Outcome:
        item_id = account.item_id_of(request, commit.container)
        return operations.patch(commit, item_id, specification, request.precondition, _holds(commit.container))

    return _change(account, request, apply)


def delete(account: Account, request: Request) -> Reply:
    """`DELETE …/docs/{id}`."""

    def apply(commit: Commit) -> Outcome:
        item_id = account.item_id_of(request, commit.container)
        return operations.delete(commit, item_id, request.precondition)

    return _change(account, request, apply)


def batch(account: Account, request: Request) -> Reply:
    """`POST …/docs` with `x-ms-cosmos-is-batch-request`."""
    if not request.flag("x-ms-cosmos-batch-atomic"):
        return _bulk(account, request)
    container, key = _target(account, request)
    partition = container.partition_of(key.effective)
    with refused_at(container, partition):
        requested = parse_batch(request.body)
        if any(operation.kind == "Read" for operation in requested):
            account.check_session(request, partition)
        result = execute_batch(
            account.items,
            container,
            key,
            requested,
            _holds(container),
            with_bodies=not _prefers_minimal(request),
        )
    return _batch_reply(request, container, partition, result)


def _bulk(account: Account, request: Request) -> Reply:
    """Execute independent operations on one physical partition."""
    container = account.container_of(request)
    partition = partition_by_id(container, request.headers.get("x-ms-documentdb-partitionkeyrangeid", ""))
    with refused_at(container, partition):
        requested = parse_batch(request.body)
        if any(operation.kind == "Read" for operation in requested):
            account.check_session(request, partition)
        goes_on = request.flag("x-ms-cosmos-batch-continue-on-error")
        result = execute_each(account.items, container, partition, requested, _holds(container), goes_on=goes_on)
    return _batch_reply(request, container, partition, result)


def _batch_reply(request: Request, container: Container, partition: Partition, result: BatchResult) -> Reply:
    """Encode the answer in the format of the request.

    As with a 404 of one operation, there is no `_rid` of the container if an operation found no item
    (BatchSinglePartitionKeyTests.cs of azure-cosmos-dotnet-v3).
    """
    is_rows = hybridrow.is_rows(request.body)
    body = hybridrow.results(result.rows) if is_rows else result.text.encode()
    headers = data_headers(container, partition, result.charge)
    if any(row.status == NotFound.status for row in result.rows):
        del headers[OWNER_RID]
    return Reply(result.status, body, headers)


def delete_logical_partition(account: Account, request: Request) -> Reply:
    """`POST …/operations/partitionkeydelete`: every item of one partition key."""
    container, key = _target(account, request)
    partition = container.partition_of(key.effective)
    with account.items.commit(container, key) as commit:
        for item_id in account.items.ids_in(partition, key):
            if item := commit.find(item_id):
                commit.delete(item)
    return Reply(200, b"", data_headers(container, partition, 1.0))


def _change(account: Account, request: Request, apply: Callable[[Commit], Outcome]) -> Reply:
    container, key = _target(account, request)
    partition = container.partition_of(key.effective)
    with refused_at(container, partition), account.items.commit(container, key) as commit:
        outcome = apply(commit)
    if outcome.item is None:
        return Reply(outcome.status, b"", data_headers(container, partition, outcome.charge))
    reply = item_reply(outcome.status, container, partition, outcome.item, outcome.charge)
    if _prefers_minimal(request):
        reply.body = b""
    return reply


def _target(account: Account, request: Request) -> tuple[Container, PartitionKey]:
    container = account.container_of(request)
    return container, container.partition_key.of_header(request.headers.get("x-ms-documentdb-partitionkey"))


def _document(request: Request) -> Document:
    for trigger in ("x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include"):
        if trigger in request.headers:
            raise BadRequest(f"Triggers are not supported ({trigger}).")
    return Document.of(request.json())


def _prefers_minimal(request: Request) -> bool:
    return request.headers.get("prefer", "").lower() == "return=minimal"


def _holds(container: Container) -> Callable[[object, Item], bool]:
    def holds(condition: object, item: Item) -> bool:
        return condition_holds(condition, item.rendered(container.raw_rid, container.self_link))

    return holds
