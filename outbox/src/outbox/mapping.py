"""Stores values under the annotations of their fields, and reads them again: dataclasses as objects with names in
camelCase, tuples as arrays.

Members of a stored object that its class does not have are kept, so that a service of an older version does not
remove what a newer one has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from outbox.annotations import members_of
from outbox.shapes import Either, Fixed, Items, Member, Members, Record, Shape, Unmapped


class Unknown:
    """The members of stored objects that their classes do not have, by the object that was read from them.

    They are kept as long as that very object is in the entity; an object that replaces it has none.
    """

    def __init__(self) -> None:
        # By identity, as many dataclasses are not hashable. Held, so that no other object gets its identity.
        self._found: dict[int, tuple[object, dict[str, Any]]] = {}

    def keep(self, value: object, members: dict[str, Any]) -> None:
        if members:
            self._found[id(value)] = (value, members)

    def of(self, value: object) -> dict[str, Any]:
        return self._found.get(id(value), (value, {}))[1]


def stored(shape: Shape, value: Any, unknown: Unknown) -> Any:
    """Return the JSON data of `value`.

    Raises:
        Unmapped: `value` contains a dataclass where the annotation has none, or another one.
        RecursionError: It is nested too deeply.
    """
    match shape:
        case Record(kind) if type(value) is kind:
            return unknown.of(value) | stored_members(members_of(kind), value, unknown)
        case Items(element) if isinstance(value, list | tuple):
            return [_stored_at(element, each, f"[{index}]", unknown) for index, each in enumerate(value)]
        case Fixed(elements) if isinstance(value, list | tuple) and len(value) == len(elements):
            pairs = enumerate(zip(elements, value, strict=True))
            return [_stored_at(element, each, f"[{index}]", unknown) for index, (element, each) in pairs]
        case Members(element) if isinstance(value, Mapping):
            return {key: _stored_at(element, each, "[…]", unknown) for key, each in value.items()}
        case Either(of_object, of_array) if isinstance(value, list | tuple):
            return stored(of_array, value, unknown)
        case Either(of_object, of_array):
            return stored(of_object, value, unknown)
    _refuse_dataclasses(value, shape)
    return value


def stored_members(members: tuple[Member, ...], value: object, unknown: Unknown) -> dict[str, Any]:
    """Return the JSON data of these fields of `value`; raises as `stored`."""
    return {
        member.name: _stored_at(member.shape, getattr(value, member.field), f".{member.field}", unknown)
        for member in members
    }


def restored(shape: Shape, data: Any, unknown: Unknown) -> Any:
    """Return the value that `stored` returned `data` for. Data of another JSON type is returned as it is.

    Raises:
        Unmapped: An object lacks a member that its class requires.
    """
    match shape:
        case Record(kind) if isinstance(data, dict):
            members = members_of(kind)
            value = _constructed(kind, members, data, unknown)
            unknown.keep(value, unknown_members(members, data))
            return value
        case Items(element, make) if isinstance(data, list):
            return make(_restored_at(element, each, f"[{index}]", unknown) for index, each in enumerate(data))
        case Fixed(elements) if isinstance(data, list) and len(data) == len(elements):
            pairs = enumerate(zip(elements, data, strict=True))
            return tuple(_restored_at(element, each, f"[{index}]", unknown) for index, (element, each) in pairs)
        case Members(element) if isinstance(data, dict):
            return {key: _restored_at(element, each, "[…]", unknown) for key, each in data.items()}
        case Either(_, of_array) if isinstance(data, list):
            return restored(of_array, data, unknown)
        case Either(of_object, _) if isinstance(data, dict):
            return restored(of_object, data, unknown)
    return data


def restored_members(members: tuple[Member, ...], data: Mapping[str, Any], unknown: Unknown) -> dict[Member, Any]:
    """Return the values of those fields that `data` has; raises as `restored`."""
    for member in members:
        if member.required and member.name not in data:
            raise Unmapped("is not in the stored document and has no default", f".{member.field}")
    return {
        member: _restored_at(member.shape, data[member.name], f".{member.field}", unknown)
        for member in members
        if member.name in data
    }


def unknown_members(members: tuple[Member, ...], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of `data` that are none of these fields."""
    known = {member.name for member in members}
    return {name: value for name, value in data.items() if name not in known}


def _constructed(kind: type, members: tuple[Member, ...], data: dict[str, Any], unknown: Unknown) -> Any:
    values = restored_members(members, data, unknown)
    value = kind(**{member.field: each for member, each in values.items() if member.init})
    for member, each in values.items():
        if not member.init:
            object.__setattr__(value, member.field, each)  # the class may be frozen
    return value


def _stored_at(shape: Shape, value: Any, step: str, unknown: Unknown) -> Any:
    try:
        return stored(shape, value, unknown)
    except Unmapped as error:
        raise error.within(step) from None


def _restored_at(shape: Shape, data: Any, step: str, unknown: Unknown) -> Any:
    try:
        return restored(shape, data, unknown)
    except Unmapped as error:
        raise error.within(step) from None


def _refuse_dataclasses(value: Any, shape: Shape) -> None:
    """Raise Unmapped if `value` contains a dataclass: it would not be read again as one."""
    pending, seen = [value], set()
    while pending:
        each = pending.pop()
        if isinstance(each, Mapping | list | tuple):
            if id(each) not in seen:
                seen.add(id(each))
                pending += each.values() if isinstance(each, Mapping) else each
        elif is_dataclass(each) and not isinstance(each, type):
            declared = f"declares {shape.kind.__name__}" if isinstance(shape, Record) else "declares no dataclass"
            raise Unmapped(f"holds a {type(each).__name__}, but its annotation {declared} there")
