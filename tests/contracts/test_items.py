"""The contract of every store of items: the one in memory, and the adapters."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from relay.core import holds
from relay.core.errors import StoreError
from relay.core.holds import Holds, Order
from relay.quarantine.items import (
    BATCH_BYTES,
    BATCH_OPERATIONS,
    BatchFailed,
    Create,
    Delete,
    Filter,
    ItemChanged,
    ItemExists,
    ItemNotFound,
    Items,
    ItemTooLarge,
    Touch,
)
from tests.support.stores import Store, record

# What SQL text cannot hold as it is, and what may be taken for something else. None has a lone surrogate, which
# Cosmos DB takes in no partition key.
ODD_TEXTS = [
    "",
    " ",
    "a ",
    "A",
    "a\0b",
    "\U0001f600",
    "\\u0000",
    "\\",
    "é",
    "e\u0301",
    "ß",
    "ss",
    "%_[a]",
    "'\"?",
    "\u2028",
    "\ufeff",
    "\uffff",
]


def item(identifier: str, key: str = "k", **more: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "t", **more}


async def ids(items: Items, item_type: str = "t", key: str | None = None) -> list[str]:
    return sorted([found["id"] for found in await items.of_type(item_type, key)])


# one item


async def test_an_item_is_read_as_it_was_created(store: Store) -> None:
    created = item("a", n=1.0, big=2**53 - 1, text="é\u2028", nested={"b": [None, True, {}]})

    await store.items.create(created)

    read = (await store.items.read("a", "k")).item
    assert {name: read[name] for name in created} == created
    assert type(read["n"]) is float


async def test_an_item_is_created_once_within_a_partition_key(items: Items) -> None:
    await items.create(item("a", n=1))

    with pytest.raises(ItemExists):
        await items.create(item("a", n=2))
    await items.create(item("a", "other"))

    assert (await items.read("a", "k")).item["n"] == 1


async def test_an_item_that_does_not_exist_is_not_found(items: Items) -> None:
    await items.create(item("a", "other"))

    for request in (
        items.read("a", "k"),
        items.delete("a", "k"),
        items.delete("a", "k", etag='"1"'),
        items.touch("a", "k"),
    ):
        with pytest.raises(ItemNotFound):
            await request


async def test_an_item_is_deleted_once(items: Items) -> None:
    await items.create(item("a"))

    await items.delete("a", "k")

    with pytest.raises(ItemNotFound):
        await items.delete("a", "k")


async def test_touching_changes_the_version_and_the_time_and_nothing_else(store: Store) -> None:
    await store.items.create(item("a", n=1))
    before = await store.items.read("a", "k")

    await store.items.touch("a", "k")
    once = await store.items.read("a", "k")
    await store.items.touch("a", "k")
    twice = await store.items.read("a", "k")

    assert len({before.etag, once.etag, twice.etag}) == 3
    assert before.item.get("touchedAt", "") < once.item["touchedAt"] < twice.item["touchedAt"]
    assert {name: twice.item[name] for name in before.item if name[0] != "_"} == {
        name: value for name, value in before.item.items() if name[0] != "_"
    }


async def test_an_item_that_has_changed_is_not_deleted_by_its_old_etag(store: Store) -> None:
    items = store.items
    await items.create(item("a"))
    old = (await items.read("a", "k")).etag
    await store.others.touch("a", "k")
    new = (await items.read("a", "k")).etag

    with pytest.raises(ItemChanged):
        await items.delete("a", "k", etag=old)
    assert (await items.read("a", "k")).etag == new
    await items.delete("a", "k", etag=new)

    with pytest.raises(ItemNotFound):
        await items.delete("a", "k", etag=new)


async def test_an_item_that_was_created_again_has_another_etag(items: Items) -> None:
    await items.create(item("a"))
    old = (await items.read("a", "k")).etag
    await items.delete("a", "k")
    await items.create(item("a"))

    with pytest.raises(ItemChanged):
        await items.delete("a", "k", etag=old)


@pytest.mark.parametrize("more", [{"text": "x" * 2_200_000}, {"text": "\U0001f600" * 400_000}])
async def test_an_item_of_more_than_two_megabytes_is_stored_whole_or_refused(
    items: Items, more: dict[str, str]
) -> None:
    try:
        await items.create(item("a", **more))
    except ItemTooLarge:
        assert await ids(items) == []
    else:
        assert (await items.read("a", "k")).item["text"] == more["text"]


async def test_an_item_of_many_levels_is_stored_whole_or_refused(items: Items) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    try:
        await items.create(item("a", deep=deep))
    except ItemTooLarge:
        assert await ids(items) == []
    else:
        assert (await items.read("a", "k")).item["deep"] == deep


# batches


async def test_a_batch_carries_out_all_of_its_operations(store: Store) -> None:
    for name in ("a", "b", "c"):
        await store.items.create(item(name))
    before = (await store.items.read("b", "k")).etag

    await store.items.batch("k", [Touch("b"), Delete("a"), Create(item("d", n=1)), Delete("c")])

    assert await ids(store.items) == ["b", "d"]
    touched = await store.items.read("b", "k")
    assert (touched.etag != before, "touchedAt" in touched.item) == (True, True)
    assert (await store.items.read("d", "k")).item["n"] == 1


FAILING: list[tuple[Create | Delete | Touch, type[Exception]]] = [
    (Create(item("a")), ItemExists),
    (Delete("x"), ItemNotFound),
    (Delete("x", "etag"), ItemNotFound),
    (Delete("a", "another etag"), ItemChanged),
    (Touch("x"), ItemNotFound),
]


async def test_a_batch_of_which_one_operation_fails_changes_nothing(store: Store) -> None:
    await store.items.create(item("a"))
    await store.items.create(item("b"))
    before = (await store.items.read("b", "k")).etag
    for (failing, error), place in itertools.product(FAILING, (0, 1, 3)):
        operations: list[Create | Delete | Touch] = [Touch("b"), Create(item("c")), Delete("b")]
        operations.insert(place, failing)

        with pytest.raises(BatchFailed) as raised:
            await store.items.batch("k", operations)

        assert (raised.value.index, type(raised.value.error)) == (place, error), failing
        assert await ids(store.items) == ["a", "b"]
        assert (await store.items.read("b", "k")).etag == before


async def test_a_batch_deletes_an_item_as_it_was_read(items: Items) -> None:
    await items.create(item("a"))
    read = await items.read("a", "k")

    await items.batch("k", [Delete("a", read.etag), Create(item("a", n=2))])

    assert (await items.read("a", "k")).item["n"] == 2


async def test_a_batch_finds_only_the_items_of_its_partition_key(items: Items) -> None:
    await items.create(item("a", "other"))

    with pytest.raises(BatchFailed):
        await items.batch("k", [Delete("a")])
    await items.batch("k", [Create(item("a"))])

    assert [found["partitionKey"] for found in await items.of_type("t", "k")] == ["k"]


async def test_a_batch_may_be_as_large_as_is_promised(items: Items) -> None:
    text = "x" * (BATCH_BYTES // BATCH_OPERATIONS - 100)
    batch = [Create(item(f"{number:03}", text=text)) for number in range(BATCH_OPERATIONS)]

    await items.batch("k", batch)

    assert await ids(items) == [operation.item["id"] for operation in batch]


async def test_a_batch_that_is_too_large_is_stored_whole_or_refused_without_a_place(items: Items) -> None:
    batch = [Create(item(name, text="x" * 900_000)) for name in "abc"]

    failed = None
    try:
        await items.batch("k", batch)
    except BatchFailed as error:
        failed = error

    if failed is None:
        assert await ids(items) == ["a", "b", "c"]
    else:
        assert (failed.index, type(failed.error)) == (None, ItemTooLarge)
        assert await ids(items) == []


async def test_a_deletion_by_etag_and_a_batch_that_touches_never_both_succeed(store: Store) -> None:
    for attempt in range(10):
        name = f"marker {attempt}"
        await store.items.create(item(name))
        etag = (await store.items.read(name, "k")).etag

        results = await asyncio.gather(
            store.items.batch("k", [Touch(name), Create(item(f"behind {attempt}"))]),
            store.others.delete(name, "k", etag=etag),
            return_exceptions=True,
        )

        left = await ids(store.items)
        assert [type(result) for result in results] in ([type(None), ItemChanged], [BatchFailed, type(None)])
        assert (name in left) is (f"behind {attempt}" in left)


# queries


async def test_parked_keys_and_orders_are_read_and_nothing_else(store: Store) -> None:
    orders = [("a", "e1"), ("c", "e/2"), ("a", "\0"), ("k ", "é ")]
    for stored in (
        *(holds.parked_marker_item(key, "r1") for key in ("a", "b", "b ", "a\0")),
        *(holds.order_item(*order) for order in orders),
        record("r1", "a"),
    ):
        await store.items.create(stored)

    found = await store.items.holds()

    assert found == Holds(dict.fromkeys(["a", "b", "b ", "a\0"]), dict.fromkeys(orders, (Order(),)))


async def test_more_holds_than_a_page_has_are_all_read(items: Items) -> None:
    for number in range(250):
        await items.create(holds.parked_marker_item(f"k{number}", "r"))

    assert len((await items.holds()).parked) == 250


async def test_items_of_a_type_are_found_in_every_partition_key_or_in_one(items: Items) -> None:
    for name, key in (("a", "k"), ("b", "other"), ("c", "k")):
        await items.create(item(name, key, n=name))
    await items.create(item("d") | {"type": "another"})

    assert (await ids(items), await ids(items, key="k"), await ids(items, key="K")) == (
        ["a", "b", "c"],
        ["a", "c"],
        [],
    )
    assert sorted([found["n"] for found in await items.of_type("t")]) == ["a", "b", "c"]


async def test_records_are_counted_by_reason_and_partition_key(items: Items) -> None:
    for number in range(7):
        await items.create(record(str(number), f"key {number % 2}", reason=f"reason {number % 3}"))
    await items.create(item("no record", "key 1"))

    assert await items.count(Filter()) == 7
    assert await items.count(Filter("reason 0")) == 3
    assert await items.count(Filter(partition_key="key 1")) == 3
    assert await items.count(Filter("reason 0", "key 1")) == 1
    assert await items.count(Filter("another")) == await items.count(Filter(partition_key="")) == 0


async def test_a_count_has_seen_what_was_read_before_it(store: Store) -> None:
    await store.items.create(item("count", n=0))
    for number in range(1, 20):
        counted = Create(item("count", n=number))
        await store.others.batch("k", [Delete("count"), counted, Create(record(str(number)))])

        seen = (await store.items.read("count", "k")).item["n"]

        assert await store.items.count(Filter(partition_key="k")) >= seen


async def test_summaries_are_in_order_of_arrival_the_oldest_first(items: Items) -> None:
    times = {"c": "2026-02-09T11:00:00.5+00:00", "a": "2026-02-09T10", "b": "2026-02-09T11:00:00+00:00"}
    for name, at in times.items():
        await items.create(record(name, f"key of {name}", at))
    await items.create(item("no record", quarantinedAt="2026"))

    assert [found.id for found in await items.summaries(Filter())] == ["a", "b", "c"]
    assert [found.id for found in await items.summaries(Filter(), 2)] == ["a", "b"]
    assert [found.id for found in await items.summaries(Filter(partition_key="key of b"), limit=2)] == ["b"]
    assert [found.id for found in await items.summaries(Filter("message-refused"), limit=9)] == ["a", "b", "c"]
    assert await items.summaries(Filter("another")) == []
    assert [found.id for found in await items.summaries(Filter(since="2026-02-09T11"))] == ["b", "c"]
    assert [
        found.id for found in await items.summaries(Filter(since="2026-02-09T11", partition_key="key of c"), 1)
    ] == ["c"]


async def test_a_summary_has_what_its_record_has(items: Items) -> None:
    whole = record("a", position=3, lsn=2**40, order=7, detail="it said: \0é", document={"id": "d"})
    head = {**record("b", at="2", lsn=5, documentParts=12), "document": None}
    del head["document"]
    for each in (whole, head, record("c", at="3", order=7, document={"id": 7}), record("d", at="4", document=[])):
        await items.create(each)

    first, second, third, fourth = await items.summaries(Filter())

    assert first.data() == {
        "id": "a",
        "partitionKey": "k",
        "reason": "message-refused",
        "detail": "it said: \0é",
        "quarantinedAt": "1",
        "position": 3,
        "invocationId": "i1",
        "documentId": "d",
        "documentParts": 0,
    }
    assert (first.committed, second.committed, third.committed) == ((2**40, 7), (5, 0), None)
    assert (second.parts, second.document_id, third.document_id, fourth.document_id) == (12, None, None, None)


async def test_records_are_found_by_the_beginning_of_their_ids(items: Items) -> None:
    for name in ("ab1", "ab2", "b", "a_", "a%", "[a]", "set-aside:1"):
        await items.create(record(name, f"key of {name}"))
    await items.create(item("ab3"))

    async def begin(beginning: str) -> list[str]:
        return sorted([found.id for found in await items.summaries_by_id(beginning)])

    assert await begin("ab") == ["ab1", "ab2"]
    assert [await begin(name) for name in ("a_", "a%", "[", "b", "set-aside:")] == [
        ["a_"],
        ["a%"],
        ["[a]"],
        ["b"],
        ["set-aside:1"],
    ]
    assert [await begin(name) for name in ("AB", "c", "1", "ab11", "[ab]", "%")] == [[]] * 6


# text


async def test_partition_keys_are_compared_character_by_character(store: Store) -> None:
    for number, key in enumerate(ODD_TEXTS):
        await store.items.create(record("a", key, document={"id": key, "n": number}))

    for number, key in enumerate(ODD_TEXTS):
        (found,) = await store.items.summaries(Filter(partition_key=key))
        assert (found.partition_key, found.document_id) == (key, key)
        assert (await store.items.read("a", key)).item["document"] == {"id": key, "n": number}
    assert sorted([found["partitionKey"] for found in await store.items.of_type("quarantinedEvent")]) == sorted(
        ODD_TEXTS
    )


async def test_a_partition_key_may_be_as_long_as_cosmos_db_takes(store: Store) -> None:
    one, two = "k" * 2048, "k" * 2047 + "l"
    for key in (one, two):
        await store.items.create(record("a", key))

    assert [found.partition_key for found in await store.items.summaries(Filter(partition_key=two))] == [two]


async def test_values_keep_every_character(store: Store) -> None:
    await store.items.create(item("a", texts=[*ODD_TEXTS, "\ud83d"]) | {"\0\ud83d": 1})

    read = (await store.items.read("a", "k")).item

    assert (read["texts"], read["\0\ud83d"]) == ([*ODD_TEXTS, "\ud83d"], 1)


# failures


@pytest.mark.slow
async def test_a_store_that_cannot_be_reached_says_so(store: Store) -> None:
    items = store.items
    await items.create(item("a"))
    await store.break_down()

    for request in (
        items.create(item("b")),
        items.read("a", "k"),
        items.delete("a", "k"),
        items.touch("a", "k"),
        items.batch("k", [Delete("a")]),
        items.holds(),
        items.count(Filter()),
        items.summaries(Filter()),
        items.summaries_by_id("a"),
        items.of_type("t"),
    ):
        with pytest.raises(StoreError) as raised:
            await request
        assert type(raised.value) is StoreError


async def test_items_of_a_type_are_those_at_or_after_a_time(items: Items) -> None:
    for number in (1, 2, 3):
        await items.create(item(f"a{number}", at=f"2026-01-01T00:00:0{number}"))
    await items.create(item("timeless"))

    since = await items.of_type("t", since="2026-01-01T00:00:02")
    of_key = await items.of_type("t", "other", since="2026-01-01T00:00:02")

    assert sorted(each["id"] for each in since) == ["a2", "a3"]
    assert of_key == []
