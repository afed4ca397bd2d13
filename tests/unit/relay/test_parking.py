"""Records of a parked key, in order and while it is parked; a record and the order that holds its event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from relay.core import holds
from relay.core.errors import StoreError
from relay.core.events import Reason, Rejected
from relay.quarantine.items import BatchFailed, ItemChanged, ItemExists, ItemNotFound, ItemTooLarge
from relay.quarantine.parking import NotParked, ParkedKey
from relay.quarantine.record import create, create_held, record_of
from tests.support.in_memory_items import InMemoryItems
from tests.support.outbox import event, events, plain


class Key:
    """The key "k" of a container, and which documents were reported as new."""

    def __init__(self, items: InMemoryItems) -> None:
        self._key = ParkedKey(items, "k", self._count)
        self.new: list[str] = []

    def _count(self, record: Mapping[str, Any]) -> None:
        self.new.append(record["document"]["id"] if "document" in record else "(in parts)")

    async def store(self, *documents: dict[str, Any], parks: bool = True) -> None:
        await self._key.store(list(records(*documents)), parks=parks)


@pytest.fixture
def key(items: InMemoryItems) -> Key:
    return Key(items)


def records(*documents: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for position, document in enumerate(documents):
        yield record_of(Rejected(plain(document), Reason.MESSAGE_REFUSED, "", position), "i1")


def sized(name: str, size: int) -> dict[str, Any]:
    """An event whose record has about this many bytes on the wire."""
    return event(name, "k", text="x" * (size - 800))


async def stored(items: InMemoryItems) -> list[str]:
    """The stored items in their order: documents, the marker, parts."""
    return [
        item["document"]["id"] if "document" in item else "(in parts)" if "documentParts" in item else item["type"]
        for item in items.stored
    ]


async def test_the_first_record_parks_the_key_in_one_batch_with_all(key: Key, items: InMemoryItems) -> None:
    await key.store(*events("k", 3))

    assert await stored(items) == ["parkedKey", "k-0", "k-1", "k-2"]
    assert (key.new, items.batches) == (["k-0", "k-1", "k-2"], [4])
    marker, first, *_ = items.stored
    assert marker["because"] == first["id"]


async def test_a_key_that_is_parked_already_stays_as_it_was(key: Key, items: InMemoryItems) -> None:
    await key.store(event("a", "k"))
    before = (items.stored)[0]

    await key.store(event("b", "k"), event("c", "k"))

    after = (items.stored)[0]
    assert (after["because"], after["since"]) == (before["because"], before["since"])
    assert after["touchedAt"] > before["since"]
    assert key.new == ["a", "b", "c"]


async def test_successors_need_a_parked_key(key: Key, items: InMemoryItems) -> None:
    with pytest.raises(NotParked):
        await key.store(event("a", "k"), parks=False)
    assert await stored(items) == []

    await key.store(event("a", "k"))
    await key.store(event("b", "k"), parks=False)
    await items.delete(holds.PARKED_ID, "k")
    with pytest.raises(NotParked):
        await key.store(event("c", "k"), parks=False)

    assert (await stored(items), key.new) == (["a", "b"], ["a", "b"])


async def test_a_record_of_a_released_key_does_not_park_it_again(key: Key, items: InMemoryItems) -> None:
    for record in records(event("a", "k")):
        await create(items, record)

    with pytest.raises(NotParked):
        await key.store(event("a", "k"), parks=False)

    await key.store(event("a", "k"), parks=True)
    assert (await stored(items), key.new) == (["a", "parkedKey"], [])


async def test_a_batch_has_as_many_records_as_the_service_takes(key: Key, items: InMemoryItems) -> None:
    documents = events("k", 250)

    await key.store(*documents)

    names = [document["id"] for document in documents]
    assert (key.new, items.batches) == (names, [100, 100, 53])
    assert await stored(items) == ["parkedKey", *names]


async def test_a_record_behind_another_takes_three_operations_of_a_batch(items: InMemoryItems) -> None:
    followers = behind(events("k", 67), 5)
    new: list[Mapping[str, Any]] = []

    await ParkedKey(items, "k", new.append, behind=followers).store(
        [record_of(each, "i1") for each in followers.values()], parks=True
    )

    # 33 records and the marker are a hundred operations.
    assert (len(new), items.batches) == (67, [100, 100, 4])


def behind(documents: list[dict[str, Any]], place: int) -> dict[str, Rejected]:
    """Documents behind another one, at a place of the feed, by their records' ids."""
    rejections = [
        Rejected(plain(each | {"_lsn": place}), Reason.KEY_PARKED, "", position, "k")
        for position, each in enumerate(documents)
    ]
    return {record_of(each, "i1")["id"]: each for each in rejections}


@pytest.mark.parametrize("held", range(4))
async def test_of_records_behind_another_the_one_whose_order_is_about_another_version_is_found(
    items: InMemoryItems, held: int
) -> None:
    documents = events("k", 4)
    (earlier,) = behind([documents[held]], 5).values()
    items.put(holds.fulfilled_order_item("k", earlier.id, earlier.document.place))
    followers = behind(documents, 6)
    new: list[Mapping[str, Any]] = []

    await ParkedKey(items, "k", new.append, behind=followers).store(
        [record_of(each, "i1") for each in followers.values()], parks=True
    )

    assert [record["document"]["id"] for record in new] == ["k-0", "k-1", "k-2", "k-3"]
    # The marker, four records and an order that comes and goes for each; then without that of the one.
    assert items.batches == [13, 11]


@pytest.mark.parametrize("held", range(4))
async def test_of_records_behind_another_none_is_stored_if_one_of_them_has_left_quarantine(
    items: InMemoryItems, held: int
) -> None:
    followers = behind(events("k", 4), 5)
    left = list(followers.values())[held]
    items.put(holds.fulfilled_order_item("k", left.id, left.document.place))

    with pytest.raises(NotParked):
        await ParkedKey(items, "k", lambda _: None, behind=followers).store(
            [record_of(each, "i1") for each in followers.values()], parks=True
        )

    assert await stored(items) == ["setAsideOrder"]


async def test_a_batch_has_no_more_bytes_than_fit_with_room_to_spare(key: Key, items: InMemoryItems) -> None:
    # A megabyte at most, of the two that the service takes.
    sizes = [300_000, 300_000, 300_000, 300_000, 900_000, 200_000, 200_000]

    await key.store(*(sized(f"e{number}", size) for number, size in enumerate(sizes)))

    assert items.batches == [4, 2, 2, 3]
    assert await stored(items) == ["parkedKey", *(f"e{number}" for number in range(7))]


async def test_bytes_are_counted_as_the_sdk_sends_them(key: Key, items: InMemoryItems) -> None:
    # Twelve bytes a character.
    documents = [event(f"e{number}", "k", text="\U0001f600" * 50_000) for number in range(3)]

    await key.store(*documents)

    assert items.batches == [2, 2, 2]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_document_too_large_for_a_batch_is_stored_in_parts_in_its_place(
    key: Key, items: InMemoryItems, place: int
) -> None:
    documents = [event("a", "k"), event("b", "k"), event("c", "k")]
    documents[place] = sized("large", 2_200_000)

    await key.store(*documents)

    expected = ["a", "b", "c"]
    expected[place] = "(in parts)"
    found = [name for name in await stored(items) if name not in ("parkedKey", "quarantinedEventPart")]
    assert (found, key.new) == (expected, expected)
    assert [item["because"] for item in items.stored if item["type"] == "parkedKey"] == [
        next(records(documents[0]))["id"]
    ]


async def test_of_records_that_fit_only_alone_none_is_left_out(key: Key, items: InMemoryItems) -> None:
    items.answers = [BatchFailed(None, ItemTooLarge("too large"))]

    await key.store(*events("k", 3))

    assert items.batches == [4, 2, 2, 2]
    assert await stored(items) == ["parkedKey", "k-0", "k-1", "k-2"]
    assert key.new == ["k-0", "k-1", "k-2"]


async def test_what_an_earlier_attempt_stored_stays_and_the_rest_follows(key: Key, items: InMemoryItems) -> None:
    documents = events("k", 5)
    await key.store(*documents[:2])

    await key.store(*documents)

    assert await stored(items) == ["parkedKey", *(document["id"] for document in documents)]
    assert key.new == [document["id"] for document in documents]


async def test_a_repeated_attempt_stores_nothing_again_in_parts(key: Key, items: InMemoryItems) -> None:
    large = sized("large", 2_200_000)
    await key.store(large)
    before = len(items.stored)

    await key.store(large)

    assert len(items.stored) == before
    assert key.new == ["(in parts)"]


@pytest.mark.parametrize("failure", [StoreError("busy"), BatchFailed(1, ItemNotFound("gone"))])
@pytest.mark.parametrize("count", [1, 3])
async def test_what_has_nothing_to_do_with_a_record_is_an_error(
    key: Key, items: InMemoryItems, failure: StoreError, count: int
) -> None:
    items.answers = [failure]

    with pytest.raises(StoreError) as raised:
        await key.store(*events("k", count))

    assert raised.value is failure

    assert (await stored(items), key.new) == ([], [])


async def test_a_marker_that_is_refused_is_an_error(key: Key, items: InMemoryItems) -> None:
    items.answers = [BatchFailed(0, ItemTooLarge("too large"))]

    with pytest.raises(StoreError, match="too large"):
        await key.store(*events("k", 2))

    assert await stored(items) == []


@pytest.mark.parametrize("place", [None, 1])
async def test_what_is_refused_in_parts_too_is_an_error(key: Key, items: InMemoryItems, place: int | None) -> None:
    failure = BatchFailed(place, ItemTooLarge("too large"))
    # The record, its one part, its head.
    items.answers = [failure, None, failure]

    with pytest.raises(StoreError) as raised:
        await key.store(event("a", "k"))

    assert raised.value is failure
    assert key.new == []


async def test_a_conflict_that_names_no_operation_is_taken_for_a_record_that_is_there(
    key: Key, items: InMemoryItems
) -> None:
    items.answers = [BatchFailed(None, ItemExists("there"))]

    await key.store(*events("k", 2))

    assert await stored(items) == ["parkedKey", "k-0", "k-1"]


async def test_a_head_is_stored_by_itself_where_it_does_not_fit_beside_others(items: InMemoryItems) -> None:
    new: list[Mapping[str, Any]] = []
    heads = [{"id": name, "partitionKey": "k", "documentParts": 0} for name in ("a", "b")]
    items.answers = [BatchFailed(None, ItemTooLarge("too large"))]

    await ParkedKey(items, "k", new.append).store(heads, parks=True)

    assert (new, items.batches) == (heads, [3, 2, 2])


# A record and the order that holds its event: stored at once, whatever is there and whoever changes it


def rejected(**data: Any) -> Rejected:
    return Rejected(plain(event("x", "k", **data) | {"_lsn": 5}), Reason.MESSAGE_REFUSED, "", 0, "k")


async def store(items: InMemoryItems, item: Rejected) -> bool:
    return await create_held(items, record_of(item, "i1"), "k", item)


async def orders(items: InMemoryItems) -> list[tuple[bool, int | None]]:
    """The orders of the event: whether each is carried out, and at which place."""
    found = (await items.holds()).orders.get(("k", "x"), ())
    return [(order.carried_out, None if order.place is None else order.place.lsn) for order in found]


def kinds(items: InMemoryItems) -> list[str]:
    return sorted(item["type"] for item in items.stored)


async def test_a_record_and_its_order_are_stored_in_one_batch(items: InMemoryItems) -> None:
    assert await store(items, rejected())

    assert items.batches == [2]
    assert await orders(items) == [(True, 5)]


async def test_an_operators_order_is_replaced_by_one_that_is_carried_out(items: InMemoryItems) -> None:
    items.put(holds.order_item("k", "x"))

    assert await store(items, rejected())

    assert await orders(items) == [(True, 5)]
    assert len(items.stored) == 2


async def test_a_record_that_is_there_already_is_held_again(items: InMemoryItems) -> None:
    await store(items, rejected())
    # Its order was removed, as the checkpoint had passed it, and it comes once more.
    items.take(holds.order_item("k", "x")["id"], "k")

    assert not await store(items, rejected())

    assert await orders(items) == [(True, 5)]


class Changing(InMemoryItems):
    """An order of an operator's comes or goes right before each batch, so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    async def batch(self, partition_key: str, operations: Any, /) -> None:
        if self._left:
            self._left -= 1
            order = holds.order_item("k", "x")
            if any(item["id"] == order["id"] for item in self.stored):
                self.take(order["id"], "k")
            else:
                self.put(order)
        await super().batch(partition_key, operations)


async def test_an_order_that_comes_and_goes_meanwhile_is_replaced_in_the_end() -> None:
    items = Changing(3)

    assert await store(items, rejected())

    assert await orders(items) == [(True, 5)]
    assert len(items.batches) == 4


async def test_an_order_that_others_change_all_the_time_is_an_error_and_nothing_is_stored() -> None:
    items = Changing(100)

    with pytest.raises(StoreError, match="is being changed by others"):
        await store(items, rejected())

    assert "quarantinedEvent" not in kinds(items)


async def test_a_document_that_is_too_large_for_one_item_is_stored_in_parts_and_held(items: InMemoryItems) -> None:
    assert await store(items, rejected(text="x" * 2_200_000))

    assert kinds(items).count("quarantinedEventPart") > 1
    assert await orders(items) == [(True, 5)]


@pytest.mark.parametrize(
    "refusal",
    [BatchFailed(0, ItemChanged("no")), BatchFailed(1, StoreError("no")), StoreError("the store is away")],
    ids=["the record", "the order", "the store"],
)
async def test_what_is_refused_for_another_reason_is_an_error(items: InMemoryItems, refusal: StoreError) -> None:
    items.answers = [refusal]

    with pytest.raises(StoreError):
        await store(items, rejected())

    assert items.stored == []


async def test_what_is_too_large_in_parts_too_is_an_error(items: InMemoryItems) -> None:
    too_large = BatchFailed(None, ItemTooLarge("no"))
    # The batch, the only part of the document, and the batch again.
    items.answers = [too_large, None, too_large]

    with pytest.raises(BatchFailed):
        await store(items, rejected())

    assert await orders(items) == []
