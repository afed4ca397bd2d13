"""Stores entities and events as JSON, and reads entities again.

What is stored of an entity is read back before it is sent: a value that would be read as another one is an error
that names its field. Members of a stored object that its class does not have are kept, so that a service of an
older version does not remove what a newer one has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from outbox_relay.outbox.fields import fields_of, is_model, is_record
from outbox_relay.outbox.reading import Unmapped, loader, read
from outbox_relay.outbox.relayable import MAX_DEPTH

T = TypeVar("T")

SET_BY_THE_LIBRARY = frozenset({"id", "deleted"})
"""Members of an entity's `data` that the library sets."""
_READ_WITHOUT = frozenset({"partition_key", "_outbox"})
_STORED_WITHOUT = _READ_WITHOUT | {"id"}


class Unknown:
    """The members of stored objects that their classes do not have, by the object that was read from them.

    They are kept as long as that very object is in the entity; an object that replaces it has none.
    """

    def __init__(self) -> None:
        # By identity, as many classes are not hashable. Held, so that no other object gets its identity.
        self._found: dict[int, tuple[object, dict[str, Any]]] = {}

    def keep(self, value: object, data: Mapping[str, Any], known: set[str]) -> None:
        members = {name: each for name, each in data.items() if name not in known}
        if members:
            self._found[id(value)] = (value, members)

    def of(self, value: object) -> dict[str, Any]:
        return self._found.get(id(value), (value, {}))[1]


def to_json(value: Any, depth: int = 0) -> Any:
    """Convert the objects in `value`, at `depth`, to JSON objects, and tuples to lists. Other values stay.

    A text or number of a derived class, such as a member of a `StrEnum`, becomes a plain one.

    Raises:
        TypeError: Two fields of a class have one name in JSON, or Pydantic cannot serialize a model.
    """
    if depth > MAX_DEPTH:
        return value  # `check_values` refuses it with its location
    if is_record(type(value)):
        return members_of(value, depth=depth + 1)
    if isinstance(value, Mapping):
        return {_plain(key): to_json(element, depth + 1) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(element, depth + 1) for element in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    """Return a text or number of a derived class as a plain one, whatever its own methods say."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def members_of(value: Any, without: frozenset[str] = frozenset(), depth: int = 0) -> dict[str, Any]:
    """Return the JSON data of an object's fields, except for those in `without`; raises as `to_json`."""
    kind = type(value)
    if not is_model(kind):
        return {field.stored_as: to_json(getattr(value, field.name), depth) for field in fields_of(kind, without)}
    try:
        stored = value.model_dump(mode="json", by_alias=True, exclude=set(without))
    except ValueError as error:
        raise TypeError(f"{kind.__name__} cannot be stored: {error}") from error
    try:
        _check_kept(value.model_dump(by_alias=True, exclude=set(without)), stored, "")
    except Unmapped as error:
        raise TypeError(f"{kind.__name__} cannot be stored: {error}.") from None
    return dict(stored)


def _check_kept(value: Any, stored: Any, path: str) -> None:
    """Raise Unmapped if Pydantic has stored a mask instead of a value, or one member for several."""
    if isinstance(value, Mapping) and isinstance(stored, Mapping):
        if len(value) != len(stored):
            raise Unmapped("has keys that would become one, as JSON has no keys but strings", path)
        for (key, each), other in zip(value.items(), stored.values(), strict=True):
            _check_kept(
                each, other, f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[…]"
            )
    elif isinstance(value, list | tuple) and isinstance(stored, list) and len(value) == len(stored):
        for index, (each, other) in enumerate(zip(value, stored, strict=True)):
            _check_kept(each, other, f"{path}[{index}]")
    elif hasattr(value, "get_secret_value") and isinstance(stored, str) and set(stored) == {"*"}:
        raise Unmapped(f"is a {type(value).__name__}, of which only a mask would be stored", path)


def stored_entity(entity: Any) -> dict[str, Any]:
    """Return the stored data of the fields that an entity's class declares, and its unknown members.

    Raises:
        TypeError: The fields do not say how to store and read them, or a value would be read as another one.
        RecursionError: A value is nested too deeply.
        Exception: A constructor rejects what would be stored.
    """
    kind = type(entity)
    check_entity_class(kind)
    data = members_of(entity, _STORED_WITHOUT)
    try:
        _compare_fields(entity, read(kind, {**data, "id": entity.id}, _READ_WITHOUT), "", _STORED_WITHOUT)
    except Unmapped as error:
        raise TypeError(_needs_both(kind, error)) from None
    except Exception as error:
        error.add_note(f"Nothing was written, because what {kind.__name__} stores could not be read again.")
        raise
    unknown = entity._outbox.unknown
    for value, members in _nested(entity, data, _STORED_WITHOUT):
        known = dict(members)
        members.clear()
        members.update(unknown.of(value) | known)
    return data | {name: value for name, value in unknown.of(entity).items() if name not in data}


def restored_entity(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return the entity stored as `data`. It keeps the unknown members of `data`.

    Raises:
        TypeError: As `stored_entity`, or a required member is missing.
    """
    check_entity_class(kind)
    try:
        entity = read(kind, {name: value for name, value in data.items() if name != "deleted"}, _READ_WITHOUT)
    except Unmapped as error:
        raise TypeError(f"{kind.__name__}{error.path} {error.why}.") from None
    unknown = entity._outbox.unknown
    known = {field.stored_as for field in fields_of(kind, _STORED_WITHOUT)}
    unknown.keep(entity, data, known | SET_BY_THE_LIBRARY)
    for value, members in _nested(entity, data, _STORED_WITHOUT):
        unknown.keep(value, members, {field.stored_as for field in fields_of(type(value))})
    return cast(T, entity)


def check_entity_class(kind: type) -> None:
    """Check that the fields that an entity class declares can be stored and read again.

    Raises:
        TypeError: A field cannot, or the class is a plain class.
    """
    if not (is_model(kind) or {"__dataclass_fields__", "__attrs_attrs__"} & vars(kind).keys()):
        raise TypeError(_needs_both(kind, "it is not a dataclass, an attrs class or a Pydantic model"))
    try:
        for field in fields_of(kind, _STORED_WITHOUT):
            if field.stored_as in SET_BY_THE_LIBRARY:
                why = f"would be stored as {field.stored_as!r}, which the library sets"
                raise Unmapped(why, f".{field.name}")
        if not is_model(kind):
            loader(kind, _READ_WITHOUT)
    except Unmapped as error:
        raise TypeError(_needs_both(kind, error)) from None


def _needs_both(kind: type, why: object) -> str:
    return f"{kind.__name__} must define to_data() and from_data(): {why}."


def _nested(value: Any, data: Mapping[str, Any], without: frozenset[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    for field in fields_of(type(value), without):
        if field.stored_as in data:
            yield from _objects(getattr(value, field.name), data[field.stored_as])


def _objects(value: Any, data: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each dataclass, attrs class or model within `value`, with the JSON object that it is stored as."""
    if value is data:
        return
    if is_record(type(value)) and isinstance(data, dict):
        yield value, data
        yield from _nested(value, data, frozenset())
    elif isinstance(value, Mapping) and isinstance(data, dict):
        for key in value.keys() & data.keys():
            yield from _objects(value[key], data[key])
    elif isinstance(value, list | tuple) and isinstance(data, list):
        for each, stored in zip(value, data, strict=False):
            yield from _objects(each, stored)


def _compare_fields(value: Any, again: Any, path: str, without: frozenset[str] = frozenset()) -> None:
    for field in fields_of(type(value), without):
        _compare(getattr(value, field.name), getattr(again, field.name), f"{path}.{field.name}")
    _compare(getattr(value, "model_extra", None), getattr(again, "model_extra", None), path)


def _compare(value: Any, again: Any, path: str) -> None:
    """Raise Unmapped if `again` does not equal `value`. JSON has one kind of array and one of object."""
    if value is again:
        return
    if is_record(type(value)) and type(value) is type(again):
        _compare_fields(value, again, path)
    elif isinstance(value, Mapping) and isinstance(again, Mapping) and value.keys() == again.keys():
        for key, each in value.items():
            _compare(each, again[key], f"{path}[…]")
    elif isinstance(value, list | tuple) and isinstance(again, list | tuple) and len(value) == len(again):
        for index, (each, other) in enumerate(zip(value, again, strict=True)):
            _compare(each, other, f"{path}[{index}]")
    elif is_record(type(value)) or value != again:
        found, expected = type(again).__name__, type(value).__name__
        because = "another one" if found == expected else f"a {found}, as its annotation does not declare it"
        raise Unmapped(f"holds a {expected} that would be read again as {because}", path)
