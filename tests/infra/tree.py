"""The tree that a Bicep file is read into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any
from typing import Literal as OneOf


@dataclass(frozen=True, slots=True)
class Constant:
    value: str | int | bool | None


@dataclass(frozen=True, slots=True)
class Text:
    """A string with `${…}` in it."""

    parts: tuple[str | Expression, ...]


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    target: Expression
    name: str
    safe: bool


@dataclass(frozen=True, slots=True)
class Index:
    target: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Choice:
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class ArrayOf:
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ObjectOf:
    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    item: str
    index: str | None
    source: Expression
    body: Expression


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if (…) {…}`: a resource or module that may not be there."""

    condition: Expression
    body: Expression


@dataclass(frozen=True, slots=True)
class Lambda:
    parameter: str
    body: Expression


Expression = (
    Constant
    | Text
    | Name
    | Member
    | Index
    | Call
    | Not
    | Binary
    | Choice
    | ArrayOf
    | ObjectOf
    | Loop
    | Conditional
    | Lambda
)
Kind = OneOf["targetScope", "metadata", "using", "param", "var", "resource", "module", "output"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One statement of a file.

    Attributes:
        type: The data type of a param or output, `Microsoft.X/y@version` of a resource, the path of a module.
        value: What stands behind the equals sign; None for a param without a default.
        decorators: Name to argument (None where there is none).
    """

    kind: Kind
    name: str
    type: str
    value: Expression | None
    existing: bool = False
    decorators: dict[str, Expression | None] = field(default_factory=dict)


def walk(node: Any) -> Iterator[Any]:
    """Everything in a part of the tree, itself included."""
    yield node
    if isinstance(node, (tuple, list)):
        inside: Any = node
    elif isinstance(node, dict):
        inside = node.values()
    elif is_dataclass(node):
        inside = (getattr(node, each.name) for each in fields(node))
    else:
        inside = ()
    for each in inside:
        yield from walk(each)
