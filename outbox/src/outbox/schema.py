"""The data of entities that are dataclasses: which of their fields are stored, and how."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from outbox.annotations import check_records, members_of
from outbox.mapping import Unknown, restored_members, stored_members, unknown_members
from outbox.shapes import Member, Unmapped

T = TypeVar("T")

SET_BY_THE_LIBRARY = frozenset({"id", "deleted"})
"""Members of `data` that the library sets."""


def stored_data(entity: object, base: type, unknown: Unknown) -> dict[str, Any]:
    """Return the stored data of an entity's own fields, those that `base` does not have, and its unknown members.

    Raises:
        TypeError: The class is not a dataclass, or a field cannot be stored and read again.
        RecursionError: A value is nested too deeply.
    """
    members = own_members(type(entity), base)
    try:
        data = stored_members(members, entity, unknown)
    except Unmapped as error:
        raise TypeError(_needs_both(type(entity), error)) from None
    return data | {name: value for name, value in unknown.of(entity).items() if name not in data}


def restored_entity(kind: type[T], base: type, data: Mapping[str, Any], unknown: Unknown) -> T:
    """Return the entity of which `data` was stored. Its unknown members are added to `unknown`.

    Raises:
        TypeError: As `stored_data`, or a required member is missing.
    """
    members = own_members(kind, base)
    try:
        values = restored_members(members, data, unknown)
    except Unmapped as error:
        raise TypeError(f"{kind.__name__}{error.path} {error.why}.") from None
    identity = {"id": data["id"]} if "id" in data else {}
    entity = kind(**identity, **{member.field: value for member, value in values.items() if member.init})
    for member, value in values.items():
        if not member.init:
            setattr(entity, member.field, value)
    others = unknown_members(members, data)
    unknown.keep(entity, {name: value for name, value in others.items() if name not in SET_BY_THE_LIBRARY})
    return entity


def own_members(kind: type, base: type) -> tuple[Member, ...]:
    """Return the fields of an entity class that `base` does not have.

    Raises:
        TypeError: The class is not a dataclass, or a field cannot be stored and read again.
    """
    return _own_members(kind, base)


@cache
def _own_members(kind: type, base: type) -> tuple[Member, ...]:
    if "__dataclass_fields__" not in kind.__dict__:
        raise TypeError(_needs_both(kind, "it is not a dataclass"))
    inherited = frozenset(vars(base)["__dataclass_fields__"])
    try:
        members = members_of(kind, inherited)
        for member in members:
            if member.name in SET_BY_THE_LIBRARY:
                raise Unmapped(f"would be stored as {member.name!r}, which the library sets", f".{member.field}")
            try:
                check_records(member.shape, set())
            except Unmapped as error:
                raise error.within(f".{member.field}") from None
    except Unmapped as error:
        raise TypeError(_needs_both(kind, error)) from None
    return members


def _needs_both(kind: type, why: object) -> str:
    return f"{kind.__name__} must define to_data() and from_data(): {why}."
