"""From the parse trees of a query's clauses to its syntax."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.checks import check_query
from outbox_relay.emulators.cosmos.query.expressions import ExpressionBuilder, identifier, string
from outbox_relay.emulators.cosmos.query.syntax import (
    ArrayLiteral,
    Column,
    Expression,
    Join,
    Literal,
    Member,
    Name,
    Query,
    SortKey,
    Sourced,
    SourcedQuery,
    Subquery,
)


class QueryBuilder(ExpressionBuilder):
    """Turns the parse trees of queries, and of patches' conditions, into syntax."""

    @v_args(inline=True)
    def query(self, query: Query) -> Query:
        check_query(query)
        return query

    @v_args(inline=True)
    def select(
        self,
        distinct: Any,
        top: Any,
        projection: Any,
        origin: dict[str, Any] | None,
        where: Any,
        group: Any,
        order: Any,
        page: Any,
    ) -> Query:
        offset, limit = page or (None, None)
        return Query(
            **(origin or {"alias": None, "from_text": ""}),
            **projection,
            distinct=distinct is not None,
            top=top,
            where=where,
            group_by=tuple(group or ()),
            order_by=tuple(order or ()),
            offset=offset,
            limit=limit,
        )

    @v_args(inline=True)
    def condition(self, origin: dict[str, Any], where: Sourced) -> tuple[str, Sourced]:
        if origin["joins"] or origin.get("source"):
            raise BadRequest("Syntax error: a patch's condition can only be about the item.")
        return origin["alias"], where

    def distinct(self, _: list[Any]) -> bool:
        return True

    def top(self, children: list[Expression]) -> Expression:
        return children[0]

    def everything(self, _: list[Any]) -> dict[str, Any]:
        return {}

    def single_value(self, children: list[Sourced]) -> dict[str, Any]:
        return {"value": children[0]}

    def columns(self, children: list[tuple[str | None, Sourced]]) -> dict[str, Any]:
        columns, unnamed = [], 0
        for alias, source in children:
            name = alias or _natural_name(source.expression)
            if name is None:
                unnamed += 1
                name = f"${unnamed}"
            columns.append(Column(name, source))
        return {"columns": tuple(columns)}

    @v_args(inline=True)
    def column(self, source: Sourced, alias: Token | None) -> tuple[str | None, Sourced]:
        return (None if alias is None else identifier(alias)), source

    aliased = column

    @v_args(inline=True, meta=True)
    def from_clause(self, meta: Meta, origin: dict[str, Any], *joins: Join) -> dict[str, Any]:
        return origin | {"joins": (*origin.get("joins", ()), *joins), "from_text": self._source(meta)}

    @v_args(inline=True)
    def from_alias(self, name: Token) -> dict[str, Any]:
        return {"alias": identifier(name), "container": str(name)}

    @v_args(inline=True)
    def from_aliased(self, name: Token, alias: Token) -> dict[str, Any]:
        return {"alias": identifier(alias), "container": identifier(name)}

    @v_args(inline=True)
    def from_path(self, path: Expression, alias: Token | None = None) -> dict[str, Any]:
        """`FROM c.path`: the property, once for each item that has it."""
        name = _natural_name(path) if alias is None else identifier(alias)
        if name is None:
            raise BadRequest("Syntax error: FROM needs an alias for an element of an array.")
        # The elements of an array literal leave out what is undefined.
        whole = Sourced(ArrayLiteral((path,)), "")
        root = next(node.name for node in path.walk() if isinstance(node, Name))
        return {"alias": root, "container": root, "hides_item": True, "joins": (Join(name, whole),)}

    @v_args(inline=True)
    def path(self, name: Token, *steps: Expression) -> Expression:
        found: Expression = Name(identifier(name))
        for step in steps:
            found = Member(found, step)
        return found

    @v_args(inline=True)
    def step(self, key: Token) -> Expression:
        if key.type == "NUMBER":
            return Literal(int(key))
        return Literal(string(key) if key.type == "STRING" else identifier(key))

    @v_args(inline=True, meta=True)
    def from_subquery(self, meta: Meta, query: Query, alias: Token | None = None) -> dict[str, Any]:
        text = self._source(meta)
        text = text[text.index("(") + 1 : text.rindex(")")]
        return {"alias": None if alias is None else identifier(alias), "source": SourcedQuery(query, text)}

    @v_args(inline=True)
    def from_elements(self, alias: Token, array: Sourced) -> dict[str, Any]:
        names = [node.name for node in array.expression.walk() if isinstance(node, Name)]
        if not names:
            raise BadRequest("Syntax error: FROM … IN needs a property of the container's items.")
        return {
            "alias": names[0],
            "container": names[0],
            "hides_item": True,
            "joins": (Join(identifier(alias), array),),
        }

    @v_args(inline=True)
    def join(self, alias: Token, array: Sourced) -> Join:
        return Join(identifier(alias), array)

    @v_args(inline=True, meta=True)
    def join_subquery(self, meta: Meta, query: Query, alias: Token) -> Join:
        return Join(identifier(alias), Sourced(Subquery("rows", query), self._source(meta)))

    def group_by(self, children: list[Sourced]) -> list[Sourced]:
        return children

    def where(self, children: list[Sourced]) -> Sourced:
        return children[0]

    def order_by(self, children: list[SortKey]) -> list[SortKey]:
        return children

    @v_args(inline=True)
    def sort_key(self, source: Sourced, direction: Token | None) -> SortKey:
        return SortKey(source, direction is not None and direction.upper() == "DESC")

    def page(self, children: list[Expression]) -> tuple[Expression, ...]:
        return tuple(children)


def _natural_name(expression: Expression) -> str | None:
    match expression:
        case Name(name):
            return name
        case Member(_, Literal(str() as key)):
            return key
    return None
