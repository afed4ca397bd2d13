"""COUNT, SUM, AVG, MIN, MAX, MAKELIST, MAKESET.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/aggregate-functions: undefined values are
ignored; SUM and AVG are undefined if any value is not a number. MIN and MAX are undefined if any value is an array
or object (LinqAggregateFunctionBaselineTests and CosmosUndefinedQueryTests of azure-cosmos-dotnet-v3).
"""

from __future__ import annotations

from typing import Any

from outbox_emulators.cosmos.query.evaluation import Evaluator, Parameters, Scope, compile_expression
from outbox_emulators.cosmos.query.syntax import Call
from outbox_emulators.cosmos.query.values import UNDEFINED, Kind, canonical, kind_of, sort_order


class Aggregate:
    """The running state of an aggregate."""

    def __init__(self, call: Call, parameters: Parameters) -> None:
        self.call = call
        self._argument: Evaluator = compile_expression(call.arguments[0], parameters)
        self._count = 0
        self._sum: Any = 0
        self._extreme: Any = UNDEFINED
        self._has_complex = False
        self._values: list[Any] = []
        self._seen: set[str] = set()

    def add(self, scope: Scope) -> None:
        value = self._argument(scope)
        if value is UNDEFINED:
            return
        self._count += 1
        if self.call.function in ("SUM", "AVG"):
            numeric = kind_of(value) is Kind.NUMBER and self._sum is not UNDEFINED
            self._sum = self._sum + value if numeric else UNDEFINED
        elif self.call.function in ("MIN", "MAX"):
            self._consider(value)
        elif self.call.function == "MAKELIST":
            self._values.append(value)
        elif self.call.function == "MAKESET" and (name := canonical(value)) not in self._seen:
            self._seen.add(name)
            self._values.append(value)

    def result(self) -> Any:
        match self.call.function:
            case "COUNT":
                return self._count
            case "SUM":
                return self._sum
            case "AVG":
                return UNDEFINED if self._sum is UNDEFINED or not self._count else self._sum / self._count
            case "MAKELIST" | "MAKESET":
                return self._values
        return UNDEFINED if self._has_complex else self._extreme

    def _consider(self, value: Any) -> None:
        self._has_complex = self._has_complex or isinstance(value, list | dict)
        if self._extreme is UNDEFINED:
            self._extreme = value
            return
        order = sort_order(value, self._extreme)
        if order < 0 if self.call.function == "MIN" else order > 0:
            self._extreme = value
