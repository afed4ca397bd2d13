"""What the annotation of a field says about its JSON: which parts of the value are dataclasses or tuples.

Annotations decide, not values, because a stored object does not say of which class it was.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections import abc
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from outbox.payload import camel_case
from outbox.shapes import (
    ANYTHING,
    ARRAY,
    OBJECT,
    SCALAR,
    Either,
    Fixed,
    Items,
    Member,
    Members,
    Plain,
    Record,
    Shape,
    Unmapped,
)

_SCALARS = (str, int, float, types.NoneType)
_ARRAYS: tuple[type, ...] = (abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_OBJECTS: tuple[type, ...] = (abc.Mapping, abc.MutableMapping)


def members_of(kind: type, without: frozenset[str] = frozenset()) -> tuple[Member, ...]:
    """Return the fields of a dataclass but those named in `without`.

    Raises:
        Unmapped: Two fields have one name in JSON, or a field has a type that cannot be read again.
    """
    return _members_of(kind, without)


@cache
def _members_of(kind: type, without: frozenset[str]) -> tuple[Member, ...]:
    found: dict[str, Member] = {}
    for item in fields(kind):
        if item.name in without:
            continue
        name = camel_case(item.name)
        if name in found:
            raise Unmapped(f"and {found[name].field} are both stored as {name!r}", f".{item.name}")
        try:
            shape = shape_of(_annotation(kind, item))
        except Unmapped as error:
            raise error.within(f".{item.name}") from None
        required = item.init and item.default is MISSING and item.default_factory is MISSING
        found[name] = Member(item.name, name, item.init, required, shape)
    return tuple(found.values())


def check_records(shape: Shape, seen: set[type]) -> None:
    """Check all dataclasses within `shape` but those in `seen`, to which they are added.

    Raises:
        Unmapped: One of them cannot be stored and read again.
    """
    if isinstance(shape, Record) and shape.kind not in seen:
        seen.add(shape.kind)
        for member in members_of(shape.kind):
            try:
                check_records(member.shape, seen)
            except Unmapped as error:
                raise error.within(f".{member.field}") from None
    for part in _parts(shape):
        check_records(part, seen)


def shape_of(hint: Any) -> Shape:
    """Return what a resolved annotation says.

    Raises:
        Unmapped: Its values are not JSON, or could not be told apart when they are read.
    """
    hint = _without_alias(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union([shape_of(each) for each in arguments], hint)
    if origin is Literal:
        return SCALAR
    kind = hint if origin is None else origin
    if not isinstance(kind, type) or kind in (Any, object):
        return ANYTHING
    if is_dataclass(kind):
        return Record(kind)
    if kind is tuple:
        return _tuple(arguments)
    if is_typeddict(kind) or kind in _OBJECTS or issubclass(kind, dict):
        return _object(arguments)
    if kind in _ARRAYS or issubclass(kind, list):
        element = shape_of(arguments[0]) if arguments else ANYTHING
        return Plain(frozenset({ARRAY})) if isinstance(element, Plain) else Items(element, list)
    if issubclass(kind, _SCALARS):
        return SCALAR
    if inspect.isabstract(kind) or getattr(kind, "_is_protocol", False):
        return ANYTHING
    raise Unmapped(f"is annotated as {_describe(hint)}, which is not JSON")


def _annotation(kind: type, item: Field[Any]) -> Any:
    """The annotation of a field, resolved where it was written; Any if it names something that is not there."""
    owner = next((each for each in kind.__mro__ if item.name in inspect.get_annotations(each)), kind)
    holder = types.SimpleNamespace(__annotations__={item.name: item.type})
    module = sys.modules.get(owner.__module__)
    try:
        return get_type_hints(holder, vars(module) if module else {}, {owner.__name__: owner})[item.name]
    except (NameError, AttributeError):
        return Any


def _without_alias(hint: Any) -> Any:
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):  # typing.NewType
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # `type Lines = list[Line]`, from Python 3.12 on
            hint = hint.__value__
        else:
            return hint


def _tuple(arguments: tuple[Any, ...]) -> Shape:
    if not arguments:
        return Items(ANYTHING, tuple)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return Items(shape_of(arguments[0]), tuple)
    return Fixed(tuple(shape_of(each) for each in arguments))


def _object(arguments: tuple[Any, ...]) -> Shape:
    if len(arguments) != 2:
        return Plain(frozenset({OBJECT}))
    key, element = _without_alias(arguments[0]), shape_of(arguments[1])
    is_text = isinstance(key, TypeVar) or key is Any or get_origin(key) is Literal
    if not is_text and not (isinstance(key, type) and issubclass(key, str)):
        raise Unmapped(f"has {_describe(key)} as keys, which would be read as strings: JSON has no others")
    return Plain(frozenset({OBJECT})) if isinstance(element, Plain) else Members(element)


def _union(shapes: list[Shape], hint: Any) -> Shape:
    of_object = [shape for shape in shapes if OBJECT in _kinds(shape)]
    of_array = [shape for shape in shapes if ARRAY in _kinds(shape)]
    for candidates, what in ((of_object, OBJECT), (of_array, ARRAY)):
        if len(candidates) > 1 and not all(isinstance(each, Plain) for each in candidates):
            raise Unmapped(f"is annotated as {_describe(hint)}, and a stored {what} does not say which it was")
    if all(isinstance(shape, Plain) for shape in shapes):
        return Plain(frozenset().union(*(_kinds(shape) for shape in shapes)))
    return Either(
        *(_only(each[0], what) if each else SCALAR for each, what in ((of_object, OBJECT), (of_array, ARRAY)))
    )


def _only(shape: Shape, what: str) -> Shape:
    """The part of `shape` for an object or an array."""
    if isinstance(shape, Either):
        return shape.of_object if what == OBJECT else shape.of_array
    return shape


def _kinds(shape: Shape) -> frozenset[str]:
    if isinstance(shape, Plain):
        return shape.kinds
    if isinstance(shape, Either):
        return _kinds(shape.of_object) | _kinds(shape.of_array)
    return frozenset({OBJECT if isinstance(shape, Record | Members) else ARRAY})


def _parts(shape: Shape) -> Iterator[Shape]:
    if isinstance(shape, Items | Members):
        yield shape.element
    elif isinstance(shape, Fixed):
        yield from shape.elements
    elif isinstance(shape, Either):
        yield from (shape.of_object, shape.of_array)


def _describe(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)
