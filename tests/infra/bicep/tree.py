"""The syntax tree of a Bicep file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Expression:
    """A node of the tree."""


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    value: str | int | bool


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """A string with `${…}` in it."""

    parts: tuple[str | Expression, ...]


@dataclass(frozen=True, slots=True)
class Name(Expression):
    name: str


@dataclass(frozen=True, slots=True)
class Member(Expression):
    """`target.name`, or `target.?name` if safe."""

    target: Expression
    name: str
    safe: bool


@dataclass(frozen=True, slots=True)
class Index(Expression):
    """`target[number]` or `target[?number]`: an item, or one of the resources or modules of a loop."""

    target: Expression
    number: Expression
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Call(Expression):
    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Lambda(Expression):
    parameter: str
    body: Expression


@dataclass(frozen=True, slots=True)
class Not(Expression):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Choice(Expression):
    """`condition ? then : otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class ArrayOf(Expression):
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ObjectOf(Expression):
    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class Loop(Expression):
    """`[for item in source: body]`, or `[for (item, number) in source: body]`."""

    item: str
    source: Expression
    body: Expression
    number: str = ""


@dataclass(frozen=True, slots=True)
class Conditional(Expression):
    """`if (condition) body`: a resource or module that may not be deployed."""

    condition: Expression
    body: Expression


Kind = Literal["targetScope", "metadata", "using", "param", "var", "resource", "module", "output"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One statement of a file.

    Attributes:
        type: The data type of a param or output, `Microsoft.X/y@version` of a resource, the path of a module.
        value: The expression after the equals sign; None for a param without a default.
        decorators: Arguments by name; None for a decorator without an argument.
    """

    kind: Kind
    name: str
    type: str
    value: Expression | None
    existing: bool = False
    decorators: dict[str, Expression | None] = field(default_factory=dict)
