"""A commit that is accepted is read back value for value.

One that is refused names the field, and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outbox_relay.outbox import DomainEntity, DomainEvent, NotFound, Refused, UnitOfWork


@dataclass(frozen=True)
class Noted(DomainEvent):
    first_note: Any


@dataclass
class Note(DomainEntity):
    first_note: Any = None
    notes: list[Any] = field(default_factory=list)

    def created_event(self) -> Noted:
        return Noted(self.first_note)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


_ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=20)
_NUMBERS = (
    st.integers()
    | st.integers(-(2**53), 2**53)
    | st.floats()
    | st.sampled_from([2**53 - 1, 1 - 2**53, 2**53, 10**400, 5e-324, 1.7976931348623157e308, -0.0, 1e22])
)
_FOREIGN = st.sampled_from([b"x", date(2026, 1, 1), Decimal("1.5"), {1}, object, Colour.RED, Size.LARGE, 1j])
_SCALARS = st.none() | st.booleans() | _NUMBERS | _ANY_TEXT | _FOREIGN
_KEYS = _ANY_TEXT | st.text(max_size=3) | st.sampled_from(["id", "_etag", "__proto__", "$type", Colour.RED])
_ODD_KEYS = st.integers(0, 3) | st.booleans() | st.none() | st.floats() | st.tuples(st.integers(0, 1))
VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(_KEYS, inner, max_size=4)
        | st.dictionaries(_KEYS | _ODD_KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)
IDS = (
    _ANY_TEXT
    | st.text(max_size=140)
    | st.text("./\\?#% +&=:;\t\n\x00\x1f\x7f\u00a0äa2鍵😀", max_size=4)
    | st.sampled_from([".", "..", "...", ".a", "a.", "%2e", "%2F", "%", "a b", " a", "a ", "~", "colls", 5, None])
    | st.sampled_from(["100%25", "a%ff", "a\u00a0", "100%", "%2"])
)


def nested(depth: int, inside: Any) -> Any:
    for _ in range(depth):
        inside = [inside]
    return inside


def as_json(value: Any) -> Any:
    """The value as a reader of JSON has it: a tuple is an array, half a pair is a part of its character."""
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str(value).encode("utf-16", "surrogatepass").decode("utf-16")
    return int(value) if isinstance(value, int) else value


def same(one: Any, other: Any) -> bool:
    """Return True if two JSON values are one; unlike `==`, which takes True for 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


async def keys(container: ContainerProxy) -> list[tuple[str, str]]:
    query = container.query_items("SELECT c.id, c.partitionKey FROM c")
    return [(item["id"], item["partitionKey"]) async for item in query]


async def remove_all(container: ContainerProxy) -> None:
    for identifier, key in await keys(container):
        await container.delete_item(identifier, key)


async def commit(container: ContainerProxy, note: Note, noted: Noted) -> str | None:
    """Store a note, with an event. Return the error if that is refused."""
    try:
        async with UnitOfWork(container) as work:
            work.repository(Note).create(note)
            work.events.create(noted, note)
            await work.commit()
    except (Refused, TypeError) as error:
        return str(error)
    return None


ROUND_TRIP = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@ROUND_TRIP
@given(value=VALUES, of_event=VALUES | st.just(None))
@example(value=nested(61, 1), of_event=nested(61, 1))
@example(value=nested(62, 1), of_event=None)
@example(value=2**53 + 1, of_event=None)
@example(value=float("nan"), of_event=None)
@example(value="\ud800", of_event=None)
@example(value={"\ud800": 1}, of_event=None)
async def test_a_value_is_read_back_as_it_was_or_refused(
    container: ContainerProxy, value: Any, of_event: Any
) -> None:
    note, noted = Note(first_note=value), Noted(of_event)

    refused = await commit(container, note, noted)

    if refused is not None:
        assert "data.firstNote" in refused
        assert await keys(container) == []
        return
    async with UnitOfWork(container) as work:
        assert same(as_json(value), (await work.repository(Note).read(note.id)).first_note)
    event = await container.read_item(noted.id, note.id)
    assert same(as_json(of_event), event["data"]["firstNote"])
    await remove_all(container)


async def test_a_value_deeper_than_python_recurses_is_refused(container: ContainerProxy) -> None:
    refused = await commit(container, Note(first_note=nested(1200, 1)), Noted(None))

    assert refused is not None
    assert "data.firstNote" in refused
    assert await keys(container) == []


@ROUND_TRIP
@given(identifier=IDS, key=st.none() | IDS, of_event=st.uuids().map(str) | IDS)
async def test_an_id_can_be_read_or_is_refused(
    container: ContainerProxy, identifier: Any, key: Any, of_event: Any
) -> None:
    note, noted = Note(id=identifier, partition_key=key), Noted(1, id=of_event)

    refused = await commit(container, note, noted)

    if refused is not None:
        assert any(
            field in refused
            for field in ("The id of", "The partition key of", "lone surrogate in id", "two objects")
        )
        assert await keys(container) == []
        return
    async with UnitOfWork(container) as work:
        assert (await work.repository(Note).read(identifier, partition_key=key)).id == identifier
    assert (await container.read_item(of_event, note.partition_key or identifier))["id"] == of_event
    await remove_all(container)


async def test_what_cannot_be_an_id_is_not_found(container: ContainerProxy) -> None:
    async with UnitOfWork(container) as work:
        for identifier in (".", "..", "a ", "a\n", "a%20"):
            with pytest.raises(NotFound, match="an id must"):
                await work.repository(Note).read(identifier)
