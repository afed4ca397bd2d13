"""Running a query over a stream of items, one page at a time.

A continuation says where the last page ended: the number of the last item and, with ORDER BY, the values it was
sorted by. So items written between two pages neither shift nor repeat the results that follow.
"""

from __future__ import annotations

import base64
import binascii
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import orjson

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.complex_values import ComplexPlace
from outbox_relay.emulators.cosmos.query.evaluation import (
    Budget,
    Evaluator,
    Parameters,
    Scope,
    compile_expression,
    joined,
    parameter,
)
from outbox_relay.emulators.cosmos.query.grouping import Grouping
from outbox_relay.emulators.cosmos.query.subqueries import compile_subqueries
from outbox_relay.emulators.cosmos.query.syntax import (
    Expression,
    Literal,
    Name,
    ObjectLiteral,
    Parameter,
    Query,
    SortKey,
)
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, canonical, load, sort_key, sort_order, sort_rank


def count(expression: Expression | None, parameters: Parameters) -> int | None:
    """Return the number, or None if there is none. Raises BadRequest if it is not a count."""
    match expression:
        case None:
            return None
        case Literal(value):
            number = value
        case Parameter(name):
            number = parameter(name, parameters)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BadRequest(f"TOP, OFFSET and LIMIT need a whole number that is not negative, not '{number}'.")
    return number


MAX_PAGE_BYTES = 4 * 1024 * 1024
_TICKS_A_SECOND = 10_000_000

_Projection = Callable[[Scope, "Row"], str | None]


@dataclass(frozen=True, slots=True)
class Row:
    """An item to query: its number (ascending in the stream) and its whole text."""

    number: int
    text: str


# The result of several items belongs to no item.
_NO_ROW = Row(0, "")


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a result: its sort values, the item's number, and its place among the item's results."""

    keys: tuple[Any, ...]
    number: int
    index: int = 0
    """Above 0 only with JOIN."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """The progress of a query: the last position, and how much of OFFSET and LIMIT is used up.

    `partition` is the number of the physical partition to continue with in a read of a whole container.
    """

    place: Place
    skipped: int = 0
    taken: int = 0
    partition: int | None = None

    def encode(self) -> str:
        keys = [_encoded(key) for key in self.place.keys]
        place = [keys, self.place.number, self.place.index]
        state = jsontext.dump([*place, self.skipped, self.taken, self.partition])
        return base64.urlsafe_b64encode(state.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Continuation:
        """Decode a continuation. Raises BadRequest if the text was not made by `encode`."""
        try:
            keys, number, index, skipped, taken, partition = orjson.loads(base64.urlsafe_b64decode(text))
            place = Place(tuple(_decoded(key) for key in keys), int(number), int(index))
            return cls(place, int(skipped), int(taken), None if partition is None else int(partition))
        except (ValueError, TypeError, binascii.Error) as error:
            # query.spec.ts of @azure/cosmos 4.3.0 expects these words.
            raise BadRequest("Invalid Continuation Token: it was not made by this account.") from error


def _encoded(key: Any) -> list[Any]:
    if isinstance(key, ComplexPlace):
        return [key.type, f"{key.hash:x}"]
    return [] if key is UNDEFINED else [key]


def _decoded(parts: list[Any]) -> Any:
    match parts:
        case []:
            return UNDEFINED
        case [value]:
            return value
        case ["array" | "object" as kind, str(digits)]:
            return ComplexPlace(kind, int(digits, 16))
    raise ValueError(f"{parts} is no sort key")


@dataclass(frozen=True, slots=True)
class Page:
    """Results as JSON texts; a continuation if there may be more; the number and size of the items examined."""

    texts: list[str]
    continuation: Continuation | None
    scanned: int
    scanned_bytes: int


@dataclass(frozen=True, slots=True)
class ResumeFilter:
    """Where a client that merges partitions itself continues a sorted result, in each of them.

    `number` is that of the last result's item, None if it was another partition's; `exclude` says that
    results which sort like the last one were returned already. Source: OrderByCrossPartitionQueryPipelineStage.cs
    of azure-cosmos-dotnet-v3.
    """

    keys: tuple[Any, ...]
    number: int | None
    exclude: bool


class Execution:
    """One query with its parameters, ready to run."""

    def __init__(
        self,
        query: Query,
        parameters: Parameters,
        resume: ResumeFilter | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the execution of a query. Raises BadRequest if a parameter is missing."""
        self._query = query
        self._moment = int(clock() * _TICKS_A_SECOND)
        self._budget = Budget()
        self._resume = resume
        self._source = None if query.source is None else Execution(query.source.query, parameters, clock=clock)
        self._subqueries = compile_subqueries(query.expressions, parameters)
        self._where = None if query.where is None else compile_expression(query.where.expression, parameters)
        self._project = _projection(query, parameters)
        self._keys = [compile_expression(key.value.expression, parameters) for key in query.order_by]
        self._joins = [(join.alias, compile_expression(join.array.expression, parameters)) for join in query.joins]
        self._grouping = Grouping(query, parameters) if query.group_by or query.aggregates else None
        self._skip = count(query.offset, parameters) or 0
        top, limit = count(query.top, parameters), count(query.limit, parameters)
        self._take = min((each for each in (top, limit) if each is not None), default=None)

    @property
    def resumes_in_order(self) -> bool:
        """True if the stream may start after the continuation's item."""
        return not (self._keys or self._query.distinct or self._grouping or self._joins or self._source)

    async def page(
        self,
        rows: AsyncIterator[Row],
        size: int,
        continuation: Continuation | None,
        max_bytes: int = MAX_PAGE_BYTES,
    ) -> Page:
        """Return up to `size` results after the continuation."""
        collector = _Collector(self, size, max_bytes, continuation)
        if self._source is not None:
            rows = self._source.rows(rows)
        if self._grouping is not None:
            return await self._grouped(rows, collector, self._grouping)
        if self._keys:
            return await self._sorted(rows, collector)
        async for row in rows:
            collector.examine(row)
            if not all(
                collector.offer(Place((), row.number, index), self._project(scope, row))
                for index, scope in self._matching(row)
            ):
                break
        return collector.page()

    async def rows(self, rows: AsyncIterator[Row]) -> AsyncIterator[Row]:
        """Yield all results, for the query around this one: `FROM (SELECT …)`."""
        page = await self.page(rows, sys.maxsize, None, sys.maxsize)
        for number, text in enumerate(page.texts):
            yield Row(number, text)

    async def _sorted(self, rows: AsyncIterator[Row], collector: _Collector) -> Page:
        results: list[tuple[Place, Row]] = []
        async for row in rows:
            collector.examine(row)
            for index, scope in self._matching(row):
                place = Place(tuple(sort_key(key(scope)) for key in self._keys), row.number, index)
                # With DISTINCT, the results of earlier pages are needed to know what repeats them.
                if self._follows(place) and (self.distinct or not collector.is_given_out(place)):
                    results.append((place, row))
        self._sort(results)
        for place, row in results:
            # Only what is returned is projected: each page of a long result examines all items.
            scope = next(islice(joined(self._scope(load(row.text)), self._joins), place.index, None))
            if not collector.offer(place, self._project(scope, row)):
                break
        return collector.page()

    def _sort(self, results: list[tuple[Place, Any]]) -> None:
        """Sort results by their places, in the order of `compare`."""
        keys = self._query.order_by
        results.sort(key=lambda result: (result[0].number, result[0].index), reverse=_is_descending(keys))
        for number in reversed(range(len(keys))):
            results.sort(key=partial(_rank, number), reverse=keys[number].descending)

    async def _grouped(self, rows: AsyncIterator[Row], collector: _Collector, grouping: Grouping) -> Page:
        groups = grouping.start(self._scope(UNDEFINED))
        async for row in rows:
            collector.examine(row)
            for _, scope in self._matching(row):
                groups.add(scope)
        results = [
            (Place(tuple(sort_key(key(scope)) for key in self._keys), number), scope)
            for number, scope in enumerate(groups.results())
        ]
        self._sort(results)
        for place, scope in results:
            if not collector.offer(place, self._project(scope, _NO_ROW)):
                break
        return collector.page()

    def _matching(self, row: Row) -> Iterator[tuple[int, Scope]]:
        """Yield the item, once for each combination of the elements that are joined, if it meets WHERE."""
        for index, scope in enumerate(joined(self._scope(load(row.text)), self._joins)):
            if self._where is None or self._where(scope) is True:
                yield index, scope

    def _scope(self, item: Any) -> Scope:
        return Scope(item, moment=self._moment, subqueries=self._subqueries, budget=self._budget)

    def _follows(self, place: Place) -> bool:
        """Return True if the client has not had this result yet."""
        if self._resume is None:
            return True
        number = place.number if self._resume.number is None else self._resume.number
        difference = self.compare(place, Place(self._resume.keys, number, place.index))
        return difference > 0 if self._resume.exclude else difference >= 0

    def compare(self, left: Place, right: Place) -> int:
        """Return the order of two results.

        Equal ones follow the items' numbers, in the direction of the first key.
        """
        for key, one, other in zip(self._query.order_by, left.keys, right.keys, strict=True):
            if difference := sort_order(one, other):
                return -difference if key.descending else difference
        difference = left.number - right.number or left.index - right.index
        return -difference if _is_descending(self._query.order_by) else difference

    @property
    def skip(self) -> int:
        return self._skip

    @property
    def take(self) -> int | None:
        return self._take

    @property
    def distinct(self) -> bool:
        return self._query.distinct


class _Collector:
    """Fills one page: skips the results of earlier pages, and applies OFFSET, LIMIT, TOP and DISTINCT."""

    def __init__(self, execution: Execution, size: int, max_bytes: int, continuation: Continuation | None) -> None:
        self._execution = execution
        self._size = size
        self._max_bytes = max_bytes
        self._after = None if continuation is None else continuation.place
        self._skipped = 0 if continuation is None else continuation.skipped
        self._taken = 0 if continuation is None else continuation.taken
        self._seen: set[str] = set()
        self._texts: list[str] = []
        self._bytes = 0
        self._last: Place | None = None
        self._more = False
        self._scanned = 0
        self._scanned_bytes = 0

    def examine(self, row: Row) -> None:
        self._scanned += 1
        self._scanned_bytes += len(row.text)

    def offer(self, place: Place, text: str | None) -> bool:
        """Take the next result in order, None for undefined; returns whether more are needed."""
        if text is None or self._repeated(text) or self.is_given_out(place):
            return True
        if self._skipped < self._execution.skip:
            self._skipped += 1
            return True
        if self._execution.take is not None and self._taken >= self._execution.take:
            return False
        if self._texts and (len(self._texts) >= self._size or self._bytes + len(text) > self._max_bytes):
            self._more = True
            return False
        self._texts.append(text)
        self._bytes += len(text)
        self._taken += 1
        self._last = place
        return True

    def page(self) -> Page:
        continuation = None
        if self._more and self._last is not None:
            continuation = Continuation(self._last, self._skipped, self._taken)
        return Page(self._texts, continuation, self._scanned, self._scanned_bytes)

    def _repeated(self, text: str) -> bool:
        if not self._execution.distinct:
            return False
        value = canonical(load(text))
        repeated = value in self._seen
        self._seen.add(value)
        return repeated

    def is_given_out(self, place: Place) -> bool:
        """Return True if an earlier page had this result."""
        return self._after is not None and self._execution.compare(place, self._after) <= 0


def _rank(key: int, result: tuple[Place, Any]) -> tuple[Any, ...]:
    return sort_rank(result[0].keys[key])


def _is_descending(order_by: Sequence[SortKey]) -> bool:
    return bool(order_by) and order_by[0].descending


def _projection(query: Query, parameters: Parameters) -> _Projection:
    if query.selects_all and not query.hides_item:
        return _whole_item
    if query.value is not None and query.value.expression == Name(query.alias or "") and not query.group_by:
        return _whole_item
    expression: Expression
    if query.value is not None:
        expression = query.value.expression
    elif query.selects_all:
        expression = Name(query.joins[0].alias)
    else:
        expression = ObjectLiteral(tuple((column.name, column.value.expression) for column in query.columns))
    evaluate: Evaluator = compile_expression(expression, parameters)

    def project(scope: Scope, row: Row) -> str | None:
        value = evaluate(scope)
        return None if value is UNDEFINED else jsontext.dump(value)

    return project


def _whole_item(scope: Scope, row: Row) -> str | None:
    return row.text
