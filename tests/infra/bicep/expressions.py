"""Evaluates Bicep expressions."""

from __future__ import annotations

import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.infra.bicep import functions, tree
from tests.infra.bicep.tree import Expression


class BicepError(Exception):
    """The compiler or Azure Resource Manager would reject this. The message says why."""


class Reference(ABC):
    """A resource or module that an expression refers to."""

    @abstractmethod
    def member(self, name: str) -> Any:
        """The value of `reference.name`."""

    @abstractmethod
    def at(self, number: int) -> Reference:
        """The reference `reference[number]`."""


class Scope:
    """Values by name, and the value of an expression that uses them.

    `special` adds functions that depend on the file. They receive the scope of the call, and the expressions of
    its arguments.
    """

    def __init__(
        self,
        names: Mapping[str, Any],
        special: Mapping[str, Callable[[Scope, tuple[Expression, ...]], Any]] | None = None,
        outer: Scope | None = None,
    ) -> None:
        self.names = dict(names)
        self._special = special or {}
        self._outer = outer

    def lookup(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        if self._outer is None:
            raise BicepError(f"the name {name} is not declared")
        return self._outer.lookup(name)

    def inner(self, names: Mapping[str, Any]) -> Scope:
        """A scope with the item of a loop or the parameter of a lambda."""
        return Scope(names, self._special, self)

    def each(self, loop: tree.Loop) -> Iterator[Scope]:
        """The scope of each iteration of a loop."""
        for number, item in enumerate(self.value(loop.source)):
            yield self.inner({loop.item: item, loop.number: number} if loop.number else {loop.item: item})

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
            case tree.Index(target, number, safe):
                found, at = self.value(target), self.value(number)
                if safe and isinstance(found, dict):
                    return found.get(at)
                return found.at(at) if isinstance(found, Reference) else found[at]
            case tree.Call(function, arguments):
                special = self._special.get(function)
                return (
                    special(self, arguments)
                    if special
                    else functions.call(function, [*map(self.value, arguments)])
                )
            case tree.Lambda(parameter, body):
                return lambda item: self.inner({parameter: item}).value(body)
            case tree.Not(operand):
                return not self.value(operand)
            case tree.Binary(symbol, left, right):
                return self._binary(symbol, left, right)
            case tree.Choice(condition, then, otherwise):
                return self.value(then if self.value(condition) else otherwise)
            case tree.ArrayOf(items):
                return [self.value(item) for item in items]
            case tree.ObjectOf(entries):
                return {self.value(key): self.value(value) for key, value in entries}
            case tree.Loop():
                return [scope.value(expression.body) for scope in self.each(expression)]
        raise BicepError(f"{type(expression).__name__} has no value here")

    @staticmethod
    def _text(value: Any) -> str:
        if isinstance(value, (str, int)):
            return str(functions.call("string", [value]))
        raise BicepError(f"{value!r} cannot be interpolated")

    @staticmethod
    def _member(target: Any, name: str, *, safe: bool) -> Any:
        if isinstance(target, Reference):
            return target.member(name)
        if isinstance(target, dict) and name in target:
            return target[name]
        if safe:
            return None
        raise BicepError(f"no {name} in {target!r}")

    def _binary(self, symbol: str, left: Expression, right: Expression) -> Any:
        first = self.value(left)
        match symbol:
            case "&&":
                return first and self.value(right)
            case "||":
                return first or self.value(right)
            case "??":
                return self.value(right) if first is None else first
        return _OPERATORS[symbol](first, self.value(right))


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def load_json(file: Path) -> Callable[[Scope, tuple[Expression, ...]], Any]:
    """The function `loadJsonContent` of a file: paths are relative to its folder, and string literals."""

    def load(_: Scope, arguments: tuple[Expression, ...]) -> Any:
        match arguments:
            case (tree.Constant(str(path)),):
                return json.loads((file.parent / path).read_text(encoding="utf-8"))
        raise BicepError(f"{file.name}: BCP032: the argument of loadJsonContent must be a string literal")

    return load
