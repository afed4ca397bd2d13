"""The record of a quarantined document, whole or in parts."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from relay.core.documents import SourceDocument
from relay.core.errors import StoreError
from relay.core.events import Reason, Rejected
from relay.quarantine.items import Item, ItemTooLarge
from relay.quarantine.record import NO_PARTITION_KEY, create, hold, record_of
from tests.support.in_memory_items import InMemoryItems
from tests.support.outbox import event


def record(document: dict[str, Any], position: int = 0) -> dict[str, Any]:
    return record_of(Rejected(SourceDocument.plain(document), Reason.MESSAGE_REFUSED, "too odd", position), "i1")


def nested(levels: int) -> dict[str, Any]:
    """An event whose document has this many levels."""
    inner: Any = 1
    for _ in range(levels - 1):
        inner = [inner]
    return {"id": "e", "partitionKey": "k", "type": "domainEvent", "data": inner}


async def whole(items: InMemoryItems) -> Any:
    """The one document that is stored in parts, put together, and how many parts there are."""
    stored = items.stored
    (head,) = [item for item in stored if item["type"] == "quarantinedEvent"]
    parts = sorted(
        (item for item in stored if item["type"] == "quarantinedEventPart"), key=lambda item: item["part"]
    )
    assert [part["part"] for part in parts] == list(range(head["documentParts"]))
    assert [part["id"] for part in parts] == [f"{head['id']}-{number}" for number in range(len(parts))]
    assert {part["recordId"] for part in parts} == {head["id"]}
    assert "document" not in head
    return json.loads("".join(part["text"] for part in parts)), len(parts)


def test_a_record_says_what_was_found_where_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    document = event("e", "k") | {"_lsn": 42, "order": 7}
    now = datetime(2026, 2, 9, 11, 37, tzinfo=timezone(timedelta(hours=2)))
    monkeypatch.setattr("relay.quarantine.record.datetime", SimpleNamespace(now=now.astimezone))

    made = record(document, 3)

    found = {name: value for name, value in made.items() if name not in ("id", "quarantinedAt")}
    assert found == {
        "partitionKey": "k",
        "type": "quarantinedEvent",
        "reason": "message-refused",
        "detail": "too odd",
        "invocationId": "i1",
        "position": 3,
        "version": 2,
        "documentId": "e",
        "lsn": 42,
        "order": 7,
        "document": document,
    }
    assert made["quarantinedAt"] == "2026-02-09T09:37:00+00:00"


def test_the_same_content_has_the_same_id_in_every_version_of_the_relay() -> None:
    document = {"id": "e", "partitionKey": "k", "data": {"action": "Ä", "n": 1.5}, "_etag": '"1"'}

    identifier = record(document)["id"]

    assert identifier == "891ddc1fcb517a8cad02aead114c441dfb4fd61c"
    assert record(dict(reversed(document.items())), 5)["id"] == identifier
    assert record(document | {"_etag": '"2"'})["id"] != identifier


@pytest.mark.parametrize("document", [{"id": "e"}, {"id": "e", "partitionKey": None}, {"partitionKey": 7}])
def test_a_record_has_a_key_though_its_document_has_none(document: dict[str, Any]) -> None:
    assert record(document)["partitionKey"] == NO_PARTITION_KEY


@pytest.mark.parametrize("value", [None, True, "7", 7.0])
def test_a_place_that_is_no_whole_number_is_none(value: Any) -> None:
    made = record(event("e", "k") | {"_lsn": value, "order": value})

    assert not {"lsn", "order"} & made.keys()
    assert made["document"]["order"] == value


def test_a_document_that_came_alone_is_the_first_of_its_batch() -> None:
    assert Rejected(SourceDocument.plain({}), Reason.ID_MISSING, "").position == 0


async def test_a_record_is_new_once(items: InMemoryItems) -> None:
    made = record(event("e", "k"))

    assert [await create(items, made) for _ in range(2)] == [True, False]
    (item,) = items.stored
    assert item.items() >= made.items()


async def test_a_document_that_is_too_large_for_an_item_is_stored_in_parts(items: InMemoryItems) -> None:
    # Twelve bytes a character on the wire: the most that one can have.
    document = event("e", "k", text="\U0001f600" * 400_000)
    made = record(document)

    assert [await create(items, made) for _ in range(2)] == [True, False]

    assert await whole(items) == (document, 3)


async def test_a_document_that_nests_too_deep_within_its_record_is_stored_in_parts(
    items: InMemoryItems,
) -> None:
    await create(items, record(nested(127)))
    assert [("document" in item) for item in items.stored] == [True]

    deepest = InMemoryItems()
    assert await create(deepest, record(nested(128)))

    assert await whole(deepest) == (nested(128), 1)


async def test_another_refusal_is_not_answered_with_parts(items: InMemoryItems) -> None:
    items.answers = [StoreError("as the test says")]

    with pytest.raises(StoreError, match="as the test says"):
        await create(items, record(event("e", "k")))

    assert items.stored == []


async def test_an_attempt_that_broke_off_between_two_parts_is_taken_up(items: InMemoryItems) -> None:
    document = event("e", "k", text="x" * 2_200_000)
    made = record(document)
    # Neither the whole nor the first part is there; the first part is created.
    items.answers = [None, None, None, StoreError("busy")]
    with pytest.raises(StoreError):
        await create(items, made)

    # The whole is refused again, the first part is there: the next request is about the second one.
    items.answers = [None, None, StoreError("busy")]
    with pytest.raises(StoreError):
        await create(items, made)
    assert await create(items, made)

    assert (await whole(items))[0] == document


async def test_however_few_parts_an_attempt_stores_the_next_one_stores_others() -> None:
    document = event("e", "k", text="x" * 2_200_000)
    made = record(document)

    class Slow(InMemoryItems):
        """Takes two parts in each attempt."""

        taken = 0

        async def create(self, item: Item, /) -> None:
            self.taken += "text" in item
            if self.taken > 2:
                raise StoreError("cut off")
            await super().create(item)

    slow = Slow()
    for _ in range(7):
        slow.taken = 0
        with pytest.raises(StoreError):
            await create(slow, made)
    slow.taken = 0
    assert await create(slow, made)

    assert await whole(slow) == (document, 15)


async def test_what_is_refused_in_parts_too_is_an_error(items: InMemoryItems) -> None:
    items.answers = [ItemTooLarge("too large"), None, ItemTooLarge("too large")]

    with pytest.raises(StoreError):
        await create(items, record(event("e", "k")))

    items.answers = [ItemTooLarge("too large"), None, None, ItemTooLarge("too deep")]
    with pytest.raises(StoreError):
        await create(items, record(event("f", "k")))


async def test_a_document_is_held_once() -> None:
    items = InMemoryItems()
    item = Rejected(SourceDocument.plain(event("e", "k")), Reason.MESSAGE_REFUSED, "too odd", 0)

    assert await hold(items, "k", item)
    assert not await hold(items, "k", item)
    assert len(items.stored) == 1
