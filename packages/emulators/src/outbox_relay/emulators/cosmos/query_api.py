"""Queries over HTTP: items, and the few other resources that clients query; read-feed; query plans."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from outbox_relay.emulators.cosmos import charges
from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.documents import Item, raw_resource_id
from outbox_relay.emulators.cosmos.errors import (
    CROSS_PARTITION_QUERY_NOT_SERVABLE,
    PARTITION_KEY_RANGE_GONE,
    BadRequest,
    Gone,
)
from outbox_relay.emulators.cosmos.feed_api import list_conflicts
from outbox_relay.emulators.cosmos.items import ITEM_COLUMNS, item_numbers
from outbox_relay.emulators.cosmos.listings import Listing
from outbox_relay.emulators.cosmos.messages import (
    Reply,
    Request,
    data_headers,
    documents_reply,
    json_page,
    json_reply,
    refused_at,
)
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.query.analysis import check_sortable, required_values
from outbox_relay.emulators.cosmos.query.complex_values import ComplexPlace
from outbox_relay.emulators.cosmos.query.execution import Continuation, Execution, Page, Place, ResumeFilter, Row
from outbox_relay.emulators.cosmos.query.parsing import parse_query
from outbox_relay.emulators.cosmos.query.planning import check_mergeable, plan_of
from outbox_relay.emulators.cosmos.query.syntax import Query
from outbox_relay.emulators.cosmos.query.values import UNDEFINED
from outbox_relay.emulators.cosmos.scopes import ReadScope, scope_in_query
from outbox_relay.emulators.cosmos.storage import NOT_EXPIRED


def check_features(query: Query, supported: str) -> None:
    """Raise BadRequest unless the client supports all that the query needs; `supported` is the header."""
    known = {feature.strip() for feature in supported.split(",")}
    missing = [feature for feature in _features(query) if feature not in known]
    if missing:
        raise BadRequest(
            "Query contains the following features, which the calling client does not support: "
            f"{' '.join(missing)}. Upgrade the SDK to a version that does, or give the query a partition key."
        )


def _features(query: Query) -> list[str]:
    needed = {
        "Aggregate": query.aggregates and query.value is not None,
        "DCount": query.counts_distinct,
        "Distinct": query.distinct,
        "GroupBy": query.group_by,
        "ListAndSetAggregate": any(call.function in ("MAKELIST", "MAKESET") for call in query.aggregates),
        "MultipleAggregates": len(query.aggregates) > 1,
        "MultipleOrderBy": len(query.order_by) > 1,
        "NonValueAggregate": query.aggregates and query.value is None,
        "OffsetAndLimit": query.offset is not None,
        "OrderBy": query.order_by,
        "Top": query.top is not None,
    }
    return [feature for feature, is_needed in needed.items() if is_needed]


_EVERYTHING = "SELECT * FROM c"
_QUERY_JSON = "application/query+json"
_ROWS_AT_ONCE = 500
_NOT_SERVABLE = (
    "The provided cross partition query can not be directly served by the gateway. This is a first chance "
    "(internal) exception that all newer clients will know how to handle gracefully. This exception is traced, "
    "but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can "
    "safely ignore this message."
)
_NOT_ENABLED = (
    "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to "
    "true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception."
)


def is_query(request: Request) -> bool:
    content_type = request.headers.get("content-type", "")
    return request.flag("x-ms-documentdb-isquery") or content_type.startswith(_QUERY_JSON)


def plan(account: Account, request: Request) -> Reply:
    """`POST …/docs` with `x-ms-cosmos-is-query-plan-request`."""
    container = account.container_of(request)
    query, parameters = _requested(request)
    named = scope_in_query(container, required_values(query, parameters))
    if named is None and len(container.partitions) > 1:
        check_mergeable(query)
    check_features(query, request.headers.get("x-ms-cosmos-supported-query-features", ""))
    return json_reply(200, plan_of(query, parameters, None if named is None else named.key_range))


async def query_items(account: Account, request: Request) -> Reply:
    """`POST …/docs` with a query."""
    started = time.perf_counter()
    query, parameters = _requested(request)
    compile_ms = (time.perf_counter() - started) * 1_000
    return await _run(account, request, query, parameters, is_feed=False, compile_ms=compile_ms)


async def read_feed(account: Account, request: Request) -> Reply:
    """`GET …/docs`: all items, page by page."""
    return await _run(account, request, parse_query(_EVERYTHING), {}, is_feed=True)


async def query_resources(request: Request, listing: Listing) -> Reply:
    """Answer a query over the list of databases, containers or offers."""
    query, parameters = _requested(request)

    async def rows() -> AsyncIterator[Row]:
        for number, resource in enumerate(listing.resources if query.has_from else [{}]):
            yield Row(number, json.dumps(resource))

    page = await Execution(query, parameters).page(rows(), request.page_size, _continuation(request))
    headers = {} if page.continuation is None else {"x-ms-continuation": page.continuation.encode()}
    return json_page(listing.rid, listing.name, [json.loads(text) for text in page.texts], headers)


def query_conflicts(account: Account, request: Request) -> Reply:
    """`POST …/conflicts` with a query: there are none, but a query may still be refused."""
    query, parameters = _requested(request)
    if ReadScope.of_request(account.container_of(request), request).partition is None:
        _check_servable(request, query, parameters, None)
    return list_conflicts(account, request)


async def _run(
    account: Account,
    request: Request,
    query: Query,
    parameters: Mapping[str, Any],
    *,
    is_feed: bool,
    compile_ms: float = 0,
) -> Reply:
    container = account.container_of(request)
    scope = ReadScope.of_request(container, request)
    required = required_values(query, parameters)
    if scope.partition is None and not is_feed:
        named = scope_in_query(container, required)
        if named is None and len(container.partitions) > 1:
            check_mergeable(query)
        _check_servable(request, query, parameters, named)
        scope = named or scope
    check_sortable(query, container.definition)
    continuation = _continuation(request)
    partition = scope.partition or _partition_to_read(container, continuation)
    with refused_at(container, partition):
        account.check_session(request, partition)
    resume = None if is_feed else _resume_filter(request, query)
    execution = Execution(query, parameters, resume, clock=account.clock.seconds)
    after = continuation.place.number if continuation and execution.resumes_in_order else -1
    if not query.has_from:
        rows = _without_items(partition, scope)
    else:
        rows = _scan(account, container, partition, scope, required.get(("id",)), after)
    started = time.perf_counter()
    page = await execution.page(rows, request.page_size, continuation)
    elapsed_ms = (time.perf_counter() - started) * 1_000
    following = page.continuation
    if scope.partition is None and query.has_from:
        following = _in_container(container, partition, following, query)
    headers = data_headers(container, partition, charges.query(page.scanned, len(page.texts)))
    if following is not None:
        headers["x-ms-continuation"] = following.encode()
    if request.flag("x-ms-documentdb-populatequerymetrics"):
        headers["x-ms-documentdb-query-metrics"] = _metrics(page, elapsed_ms, compile_ms)
    return documents_reply(container, page.texts, headers)


def _metrics(page: Page, elapsed_ms: float, compile_ms: float) -> str:
    """Return the metrics of a query, without the times of single steps.

    The format is the one that ServerSideMetricsTokenizer.cs of azure-cosmos-dotnet-v3 reads.
    """
    values = {
        "totalExecutionTimeInMs": f"{elapsed_ms + compile_ms:.2f}",
        # The client takes 0 for "not measured".
        "queryCompileTimeInMs": f"{max(compile_ms, 0.01):.2f}",
        "retrievedDocumentCount": page.scanned,
        "retrievedDocumentSize": page.scanned_bytes,
        "outputDocumentCount": len(page.texts),
        "outputDocumentSize": sum(map(len, page.texts)),
        "indexUtilizationRatio": f"{min(1.0, len(page.texts) / max(1, page.scanned)):.2f}",
    }
    return ";".join(f"{name}={value}" for name, value in values.items())


def _partition_to_read(container: Container, continuation: Continuation | None) -> Partition:
    """Read the whole container, one physical partition after the other; no page spans two."""
    if continuation is None:
        return container.partitions[0]
    for partition in container.partitions:
        if partition.number == continuation.partition:
            return partition
    raise Gone("The partition that the continuation token is of was split.", PARTITION_KEY_RANGE_GONE)


def _in_container(
    container: Container, partition: Partition, following: Continuation | None, query: Query
) -> Continuation | None:
    """Return where the read of a whole container continues: in this partition, in the next one, or nowhere."""
    if following is not None:
        return replace(following, partition=partition.number)
    if partition is container.partitions[-1]:
        return None
    next_one = container.partitions[container.partitions.index(partition) + 1]
    # The results of a subquery in FROM are numbered anew in each partition.
    before = item_numbers(next_one).start - 1 if query.source is None else -1
    return Continuation(Place((), before), partition=next_one.number)


def _check_servable(
    request: Request, query: Query, parameters: Mapping[str, Any], named: ReadScope | None
) -> None:
    if named is None and not request.flag("x-ms-documentdb-query-enablecrosspartition"):
        raise BadRequest(_NOT_ENABLED)
    if query.needs_merging:
        error = BadRequest(_NOT_SERVABLE, CROSS_PARTITION_QUERY_NOT_SERVABLE)
        # The JavaScript SDK merges results itself only where it finds a plan here (4.9.3, QueryIterator).
        planned = plan_of(query, parameters, None if named is None else named.key_range)
        error.details["additionalErrorInfo"] = json.dumps(planned)
        raise error


async def _without_items(partition: Partition, scope: ReadScope) -> AsyncIterator[Row]:
    """Yield the input of a query without FROM.

    It is nothing, once, even for a client that asks each physical partition.
    """
    if scope.key is not None or not partition.key_range.minimum:
        yield Row(0, "{}")


async def _scan(
    account: Account, container: Container, partition: Partition, scope: ReadScope, item_id: object, after: int
) -> AsyncIterator[Row]:
    """Yield items in the order of their numbers, in portions, between which other requests are served."""
    numbers = item_numbers(partition)
    values: dict[str, object] = {
        "after": max(after, numbers.start - 1),
        "end": numbers.stop,
        "now": account.clock.seconds(),
    }
    conditions = ["number > :after", "number < :end", NOT_EXPIRED]
    if scope.key is not None or partition.parents:
        conditions.append("partition = :partition")
        values["partition"] = partition.number
    if scope.key is not None:
        conditions.append("pk = :pk")
        values["pk"] = scope.key.text
    elif scope.key_range is not None:
        conditions += ["epk >= :minimum", "epk < :maximum"]
        values |= {"minimum": scope.key_range.minimum, "maximum": scope.key_range.maximum}
    if isinstance(item_id, str):
        conditions.append("id = :id")
        values["id"] = item_id
    statement = (
        f"SELECT {ITEM_COLUMNS} FROM items WHERE {' AND '.join(conditions)} ORDER BY number LIMIT {_ROWS_AT_ONCE}"
    )
    while True:
        rows = account.storage.execute(statement, values).fetchall()
        for row in rows:
            item = Item(*row)
            yield Row(item.number, item.rendered(container.raw_rid, container.self_link))
        if len(rows) < _ROWS_AT_ONCE:
            return
        values["after"] = rows[-1][0]
        await asyncio.sleep(0)


def _requested(request: Request) -> tuple[Query, dict[str, Any]]:
    specification = request.json_object()
    text, parameters = specification.get("query"), specification.get("parameters") or []
    if not isinstance(text, str) or not isinstance(parameters, list):
        raise BadRequest("A query has to be a JSON object with a 'query' and maybe a list of 'parameters'.")
    bound = {}
    for parameter in parameters:
        if not isinstance(parameter, dict) or not str(parameter.get("name", "")).startswith("@"):
            raise BadRequest("The name of a query parameter has to begin with '@'.")
        if "value" in parameter:
            bound[str(parameter["name"])] = parameter["value"]
    return parse_query(text), bound


def _resume_filter(request: Request, query: Query) -> ResumeFilter | None:
    found = request.json_object().get("resumeFilter")
    if found is None:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("value"), list):
        raise BadRequest("A resumeFilter has to be a JSON object with a 'value' for each key of ORDER BY.")
    keys = tuple(_resumed_key(key) for key in found["value"])
    if len(keys) != len(query.order_by):
        raise BadRequest("A resumeFilter has to have a 'value' for each key of ORDER BY.")
    rid = found.get("rid")
    number = None if rid is None else int.from_bytes(raw_resource_id(str(rid))[8:], "little")
    return ResumeFilter(keys, number, bool(found.get("exclude")))


def _resumed_key(value: Any) -> Any:
    """Return the sort key in a continuation.

    An empty array is undefined, an object the place of an array or object (SqlQueryResumeValue.cs).
    """
    if isinstance(value, dict):
        try:
            return ComplexPlace.read(value)
        except (KeyError, ValueError, TypeError) as error:
            raise BadRequest(f"A value of the resumeFilter is malformed: {error}.") from error
    return UNDEFINED if isinstance(value, list) else value


def _continuation(request: Request) -> Continuation | None:
    text = request.headers.get("x-ms-continuation")
    return None if not text else Continuation.decode(text)
