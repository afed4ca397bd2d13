"""The value of a Bicep expression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.infra import functions, tree
from tests.infra.tree import Expression


class BicepError(Exception):
    """The compiler or Azure Resource Manager would refuse this; the message says why."""


class Reference(ABC):
    """A resource or module that an expression names."""

    @abstractmethod
    def member(self, name: str) -> Any:
        """What stands behind the dot."""


class Scope:
    """Names and their values, and the value of an expression among them."""

    def __init__(
        self, names: Mapping[str, Any], environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        self.names = dict(names)
        self._environment = environment
        self._folder = folder
        self._literals: set[str] = set()

    def lookup(self, name: str) -> Any:
        if name not in self.names:
            raise BicepError(f"the name {name} is not declared")
        return self.names[name]

    def declare(self, name: str, expression: Expression) -> Any:
        """Evaluate a variable or parameter once, and keep its value under its name."""
        self.names[name] = value = self.value(expression)
        if self.is_literal(expression):
            self._literals.add(name)
        return value

    def is_literal(self, expression: Expression) -> bool:
        """Whether the compiler knows the one string that an expression is, without deploying.

        Narrower than the compiler, which also folds calls and interpolations of literals. A choice is the union of
        its two strings, even where both are literals (`VisitTernaryOperationSyntax` in Azure/bicep,
        src/Bicep.Core/TypeSystem/TypeAssignmentVisitor.cs).
        """
        match expression:
            case tree.Constant(value):
                return isinstance(value, str)
            case tree.Name(name):
                return name in self._literals
            case tree.Call(function, _):
                return function == "readEnvironmentVariable"
        return False

    def inner(self, names: Mapping[str, Any]) -> Scope:
        return _Inner(self, names)

    def value(self, expression: Expression) -> Any:
        match expression:
            case tree.Constant(value):
                return value
            case tree.Text(parts):
                return "".join(part if isinstance(part, str) else self._text(self.value(part)) for part in parts)
            case tree.Name(name):
                return self.lookup(name)
            case tree.Member(target, name, safe):
                return self._member(self.value(target), name, safe=safe)
            case tree.Index(target, index):
                return self.value(target)[self.value(index)]
            case tree.Not(operand):
                return not self.value(operand)
            case tree.Choice(condition, then, otherwise):
                return self.value(then if self.value(condition) else otherwise)
            case tree.Binary(operator, left, right):
                return self._binary(operator, left, right)
            case tree.ArrayOf(items):
                return [self.value(item) for item in items]
            case tree.ObjectOf(entries):
                return {self.value(key): self.value(value) for key, value in entries}
            case tree.Loop():
                return [scope.value(expression.body) for scope, _ in self.each(expression)]
            case tree.Call(function, arguments):
                return self._call(function, arguments)
        raise BicepError(f"{type(expression).__name__} has no value here")

    def each(self, loop: tree.Loop) -> Iterator[tuple[Scope, tuple[dict[str, Any], int]]]:
        """The scope of each turn of a loop, and what is turned over."""
        for number, item in enumerate(self.value(loop.source)):
            names = {loop.item: item} | ({loop.index: number} if loop.index else {})
            yield self.inner(names), (names, number)

    @staticmethod
    def _text(value: Any) -> str:
        if isinstance(value, (str, int)):
            return str(functions.call("string", [value]))
        raise BicepError(f"{value!r} cannot stand in a string")

    @staticmethod
    def _member(target: Any, name: str, *, safe: bool) -> Any:
        if isinstance(target, Reference):
            return target.member(name)
        if isinstance(target, dict) and name in target:
            return target[name]
        if safe:
            return None
        raise BicepError(f"no {name} in {target!r}")

    def _binary(self, operator: str, left: Expression, right: Expression) -> Any:
        first = self.value(left)
        match operator:
            case "&&":
                return first and self.value(right)
            case "||":
                return first or self.value(right)
            case "??":
                return self.value(right) if first is None else first
        second = self.value(right)
        match operator:
            case "==":
                return first == second
            case "!=":
                return first != second
            case "<" | "<=" | ">" | ">=":
                less, same = first < second, first == second
                return {"<": less, "<=": less or same, ">": not (less or same), ">=": not less}[operator]
            case "+" | "-" | "*":
                return {"+": first + second, "-": first - second, "*": first * second}[operator]
        raise BicepError(f"the operator {operator} is not known here")

    def _call(self, function: str, arguments: tuple[Expression, ...]) -> Any:
        values = [self._argument(argument) for argument in arguments]
        match function:
            case "readEnvironmentVariable":
                return self._environment_variable(arguments, values)
            case "loadTextContent" if self._folder is not None:
                self._literal_arguments(function, arguments)
                return (self._folder / values[0]).read_text(encoding="utf-8")
            case "map":
                return [values[1](item) for item in values[0]]
            case "filter":
                return [item for item in values[0] if values[1](item)]
        return functions.call(function, values)

    def _environment_variable(self, arguments: tuple[Expression, ...], values: list[Any]) -> str:
        """As `ReadEnvironmentVariableResultBuilder` in Azure/bicep, SystemNamespaceType.cs, refuses and answers.

        The default is checked where the variable is set, too: else a file would compile on some machines only.
        """
        if self._folder is not None:
            raise BicepError("BCP057: readEnvironmentVariable exists in parameter files only")
        self._literal_arguments("readEnvironmentVariable", arguments)
        if values[0] in self._environment:
            return self._environment[values[0]]
        if len(values) < 2:
            raise BicepError(f"BCP427: the environment variable {values[0]} does not exist, and has no default")
        return str(values[1])

    def _literal_arguments(self, function: str, arguments: tuple[Expression, ...]) -> None:
        for code, argument in zip(("BCP032", "BCP427"), arguments, strict=False):
            if not self.is_literal(argument):
                raise BicepError(f"{code}: every argument of {function} is to be a string literal")

    def _argument(self, expression: Expression) -> Any:
        if isinstance(expression, tree.Lambda):
            return lambda item: self.inner({expression.parameter: item}).value(expression.body)
        return self.value(expression)


class _Inner(Scope):
    """A scope within another: the item of a loop or lambda."""

    def __init__(self, outer: Scope, names: Mapping[str, Any]) -> None:
        super().__init__(names, outer._environment, outer._folder)
        self._outer = outer

    def lookup(self, name: str) -> Any:
        return self.names[name] if name in self.names else self._outer.lookup(name)
