"""The syntax tree of a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as Literal_

AGGREGATES = frozenset({"AVG", "COUNT", "MAKELIST", "MAKESET", "MAX", "MIN", "SUM"})


@dataclass(frozen=True, slots=True)
class Expression:
    def children(self) -> tuple[Expression, ...]:
        return ()

    def walk(self) -> Iterator[Expression]:
        yield self
        for child in self.children():
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    value: Any


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """`@name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Name(Expression):
    """An identifier alone: the alias of the item."""

    name: str


@dataclass(frozen=True, slots=True)
class Member(Expression):
    """`of.key`, `of["key"]`, `of[0]`."""

    of: Expression
    key: Expression

    def children(self) -> tuple[Expression, ...]:
        return self.of, self.key


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """`-`, `+`, `NOT`."""

    operator: str
    operand: Expression

    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """Arithmetic, `||`, comparison, `??`."""

    operator: str
    left: Expression
    right: Expression

    def children(self) -> tuple[Expression, ...]:
        return self.left, self.right


@dataclass(frozen=True, slots=True)
class Logical(Expression):
    """`AND` or `OR` of two or more: clients send chains of hundreds, which must not nest."""

    operator: str
    operands: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.operands


@dataclass(frozen=True, slots=True)
class Conditional(Expression):
    """`condition ? then : otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression

    def children(self) -> tuple[Expression, ...]:
        return self.condition, self.then, self.otherwise


@dataclass(frozen=True, slots=True)
class In(Expression):
    needle: Expression
    choices: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.needle, *self.choices


@dataclass(frozen=True, slots=True)
class Between(Expression):
    value: Expression
    low: Expression
    high: Expression

    def children(self) -> tuple[Expression, ...]:
        return self.value, self.low, self.high


@dataclass(frozen=True, slots=True)
class Like(Expression):
    value: Expression
    pattern: Expression
    escape: str | None

    def children(self) -> tuple[Expression, ...]:
        return self.value, self.pattern


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function, its name in capitals."""

    function: str
    arguments: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.arguments

    @property
    def is_aggregate(self) -> bool:
        return self.function in AGGREGATES


@dataclass(frozen=True, slots=True)
class ObjectLiteral(Expression):
    members: tuple[tuple[str, Expression], ...]

    def children(self) -> tuple[Expression, ...]:
        return tuple(value for _, value in self.members)


@dataclass(frozen=True, slots=True)
class ArrayLiteral(Expression):
    elements: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.elements


@dataclass(frozen=True, slots=True)
class Subquery(Expression):
    """`EXISTS(SELECT …)`, `ARRAY(SELECT …)`, `(SELECT …)` as one value, or its values as the rows of a JOIN.

    Its parts are not children: what an aggregate or a name means is up to the subquery.
    """

    kind: Literal_["exists", "array", "scalar", "rows"]
    query: Query


@dataclass(frozen=True, slots=True)
class SourcedQuery:
    """A query within FROM, and how it was written."""

    query: Query
    text: str


@dataclass(frozen=True, slots=True)
class Sourced:
    """An expression, and how it was written."""

    expression: Expression
    text: str


@dataclass(frozen=True, slots=True)
class Join:
    """`JOIN alias IN array`: once for each element."""

    alias: str
    array: Sourced


@dataclass(frozen=True, slots=True)
class Column:
    """An entry of a select list, and its name in the result."""

    name: str
    value: Sourced


@dataclass(frozen=True, slots=True)
class SortKey:
    value: Sourced
    descending: bool


@dataclass(frozen=True, slots=True)
class Query:
    """`SELECT …`: everything, one value, or columns."""

    alias: str | None
    """The name of the item; None without FROM."""
    from_text: str
    container: str | None = None
    """The name after FROM: of the container, or, in a subquery, of something of the query around it."""
    source: SourcedQuery | None = None
    """`FROM (SELECT …) AS alias`: the results of another query take the place of items."""
    joins: tuple[Join, ...] = ()
    hides_item: bool = False
    """`FROM element IN c.path`: only the elements have names."""
    value: Sourced | None = None
    columns: tuple[Column, ...] = ()
    distinct: bool = False
    top: Expression | None = None
    where: Sourced | None = None
    group_by: tuple[Sourced, ...] = ()
    order_by: tuple[SortKey, ...] = ()
    offset: Expression | None = None
    limit: Expression | None = None
    aggregates: tuple[Call, ...] = field(init=False)

    def __post_init__(self) -> None:
        calls = (node for source in self.selected for node in source.expression.walk() if isinstance(node, Call))
        aggregates = tuple(call for call in calls if call.is_aggregate)
        object.__setattr__(self, "aggregates", aggregates)
        if aggregates and not self.group_by:
            # There is one result, so there is nothing to sort.
            object.__setattr__(self, "order_by", ())

    @property
    def selects_all(self) -> bool:
        return self.value is None and not self.columns

    @property
    def selected(self) -> list[Sourced]:
        """The expressions after SELECT; none for `*`."""
        return [column.value for column in self.columns] if self.value is None else [self.value]

    @property
    def expressions(self) -> list[Expression]:
        """Those of all clauses, apart from a query in FROM."""
        sources = [*(join.array for join in self.joins), *self.group_by, *(key.value for key in self.order_by)]
        sources += [*self.selected, *([self.where] if self.where else [])]
        return [source.expression for source in sources]

    def property_path(self, expression: Expression) -> tuple[str, ...] | None:
        """Return ("a", "b") for `c.a.b`, or None if it is not a property of the item."""
        match expression:
            case Name(name) if name == self.alias:
                return ()
            case Member(of, Literal(str() as key)):
                above = self.property_path(of)
                return None if above is None else (*above, key)
        return None

    @property
    def has_from(self) -> bool:
        return self.alias is not None or self.source is not None

    @property
    def sorts_groups(self) -> bool:
        return bool(self.group_by and self.order_by)

    @property
    def counts_distinct(self) -> bool:
        """`SELECT COUNT(1) FROM (SELECT DISTINCT …)`, for which query plans have a place of their own."""
        if self.source is None or self.joins or self.where is not None or len(self.selected) != 1:
            return False
        inner = self.source.query
        plain = replace(inner, distinct=False)
        is_count = self.selected[0].expression == Call("COUNT", (Literal(1),))
        return is_count and inner.distinct and inner.value is not None and not plain.needs_merging

    @property
    def needs_merging(self) -> bool:
        """True if the results of several partitions cannot simply be concatenated."""
        return bool(
            (self.source is not None and self.source.query.needs_merging)
            or self.order_by
            or self.group_by
            or self.aggregates
            or self.distinct
            or self.top is not None
            or self.offset is not None
            or self.limit is not None
        )
