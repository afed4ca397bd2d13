"""The fields of dataclasses, attrs classes and Pydantic models, and the names they are stored under."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, get_type_hints

import attrs


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a class. Of a Pydantic model, which reads its fields itself, only the names are given.

    Attributes:
        name: Its name in Python.
        stored_as: Its name in JSON: in camelCase, or the alias in a Pydantic model.
        annotation: Its annotation, resolved; Any if it names something that does not exist at run time.
        argument: The constructor's argument for it; None if the constructor does not take it.
        required: Whether the constructor takes it and has no default for it.
    """

    name: str
    stored_as: str
    annotation: Any = Any
    argument: str | None = None
    required: bool = False


def camel_case(name: str) -> str:
    """Return `first_name` or `_first_name` as `firstName`."""
    head, *rest = name.strip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def lower_first(name: str) -> str:
    """Return `OrderLine` as `orderLine`."""
    return name[:1].lower() + name[1:]


def is_model(kind: type) -> bool:
    """Return True if a class is a Pydantic model. Does not import Pydantic."""
    return hasattr(kind, "model_validate")


def is_record(kind: type) -> bool:
    """Return True if a class is a dataclass, an attrs class or a Pydantic model."""
    return _is_record(kind)


@cache
def _is_record(kind: type) -> bool:
    return is_dataclass(kind) or attrs.has(kind) or is_model(kind)


def fields_of(kind: type, without: frozenset[str] = frozenset()) -> tuple[Field, ...]:
    """Return the fields of a class, except for those named in `without`.

    Raises:
        TypeError: Two fields have one name in JSON, so that one of them would be lost.
    """
    return _fields_of(kind, without)


@cache
def _fields_of(kind: type, without: frozenset[str]) -> tuple[Field, ...]:
    found: dict[str, Field] = {}
    for field in _every_field(kind):
        if field.name in without:
            continue
        if field.stored_as in found:
            both = f"{kind.__name__}.{field.name} and {kind.__name__}.{found[field.stored_as].name}"
            raise TypeError(f"{both} are both stored as {field.stored_as!r}: rename one of them.")
        found[field.stored_as] = field
    return tuple(found.values())


def _every_field(kind: Any) -> Iterator[Field]:
    if is_model(kind):
        for name, info in kind.model_fields.items():
            yield Field(name, info.serialization_alias or name)
        return
    for each in attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind):
        # dataclasses and attrs each have their own mark for "no default", and dataclasses a second place for one.
        defaults = each.default, getattr(each, "default_factory", dataclasses.MISSING)
        required = each.init and all(default in (dataclasses.MISSING, attrs.NOTHING) for default in defaults)
        argument = getattr(each, "alias", each.name) if each.init else None
        yield Field(each.name, camel_case(each.name), _annotation(kind, each), argument, required)


def _annotation(kind: type, declared: Any) -> Any:
    """Return the annotation, resolved where it was written."""
    if declared.type is None:  # attrs does not require one
        return Any
    owner = next((each for each in kind.__mro__ if declared.name in inspect.get_annotations(each)), kind)
    holder = types.SimpleNamespace(__annotations__={declared.name: declared.type})
    module = sys.modules.get(owner.__module__)
    try:
        return get_type_hints(holder, vars(module) if module else {}, {owner.__name__: owner})[declared.name]
    except (NameError, AttributeError):
        return Any
