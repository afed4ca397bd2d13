"""Quarantined documents, parked keys and holds, over a store in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from relay.core import holds
from relay.core.errors import QuarantineError, StaleClearanceError, StoreError
from relay.core.events import EventName, Reason, Rejected, read_event
from relay.core.holds import Holds
from relay.core.place import Place
from relay.quarantine.items import BatchFailed, ItemNotFound, ItemTooLarge, Stored
from relay.quarantine.quarantine import StoredQuarantine
from tests.support.in_memory_items import InMemoryItems
from tests.support.outbox import event, events, plain, sound
from tests.support.telemetry import Telemetry


def pending(held: Holds) -> set[EventName]:
    """The events of orders that are not carried out."""
    return {name for name, orders in held.orders.items() if not all(order.carried_out for order in orders)}


def process(items: InMemoryItems) -> StoredQuarantine:
    """The quarantine of a separate process."""
    return StoredQuarantine(items)


def refused(*documents: dict[str, Any]) -> list[Rejected]:
    return [rejection(document, Reason.MESSAGE_REFUSED) for document in documents]


def parked(*documents: dict[str, Any]) -> list[Rejected]:
    return [rejection(document, Reason.KEY_PARKED) for document in documents]


def rejection(document: dict[str, Any], reason: Reason) -> Rejected:
    return Rejected.of(sound(document), reason, "as the test says")


def placed(*rejected: Rejected) -> list[Rejected]:
    """In the order in which they came."""
    return [replace(item, position=position) for position, item in enumerate(rejected)]


async def records(items: InMemoryItems) -> list[tuple[str, str]]:
    """The records, document id and reason of each, by their position."""
    found = [item for item in items.stored if item["type"] == "quarantinedEvent"]
    found.sort(key=lambda item: (item["quarantinedAt"], item["position"]))
    return [(item["document"].get("id"), item["reason"]) for item in found]


async def release(items: InMemoryItems, key: str) -> None:
    await items.delete(holds.PARKED_ID, key)


async def test_the_store_is_closed_with_its_quarantine(items: InMemoryItems) -> None:
    await process(items).close()

    assert items.closed


@pytest.mark.parametrize("park", [False, True])
async def test_a_repeated_attempt_stores_and_counts_nothing_again(
    items: InMemoryItems, reported: Telemetry, park: bool
) -> None:
    rejected = [
        *refused(event("a", "k")),
        Rejected(plain({"id": "b"}), Reason.PARTITION_KEY_MISSING, ""),
    ]

    await process(items).store(rejected, "i1", park=park)
    first = reported.metrics().by("relay.events.quarantined", "reason")
    await process(items).store(rejected, "i1", park=park)

    assert first == {"message-refused": 1, "partition-key-missing": 1}
    assert reported.metrics().by("relay.events.quarantined", "reason") == {}
    assert len(await records(items)) == 2


async def test_the_first_document_of_a_key_parks_it_and_the_others_are_stored_behind(
    items: InMemoryItems,
) -> None:
    one, two = events("one", 3), events("two", 2)
    keyless = Rejected(plain({"id": "x"}), Reason.PARTITION_KEY_MISSING, "")
    rejected = placed(*refused(one[0]), keyless, *refused(two[0]), *parked(one[1], two[1], one[2]))

    await process(items).store(rejected, "i1", park=True)

    assert (await process(items).holds()).parked.keys() == {"one", "two"}
    stored = {item["document"]["id"]: item for item in items.stored if "document" in item}
    in_order = sorted(stored, key=lambda name: stored[name]["position"])
    assert in_order == ["one-0", "x", "two-0", "one-1", "two-1", "one-2"]
    because = {item["because"] for item in items.stored if item["type"] == "parkedKey"}
    assert because == {stored["one-0"]["id"], stored["two-0"]["id"]}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("x" * 129, Reason.PARTITION_KEY_TOO_LONG),
        ("", Reason.PARTITION_KEY_EMPTY),
        # Their id is as wrong, and is what they are set aside for.
        ("", Reason.ID_EMPTY),
        (7, Reason.ID_EMPTY),
        (None, Reason.ID_MISSING),
    ],
)
async def test_what_no_session_could_hold_is_stored_and_parks_nothing(
    items: InMemoryItems, key: Any, reason: Reason
) -> None:
    invalid = read_event(plain({"id": "a", "partitionKey": key}))
    assert isinstance(invalid, Rejected)
    rejected = [replace(invalid, reason=reason), *refused(event("b", "k"))]

    await process(items).store(rejected, "i1", park=True)

    assert (await process(items).holds()).parked.keys() == {"k"}
    assert sorted(await records(items)) == [("a", reason), ("b", "message-refused")]


@pytest.mark.parametrize(("released", "kept"), [("one", "two"), ("two", "one")])
async def test_a_process_knows_what_it_has_parked_before_the_replica_that_answers_does(
    items: InMemoryItems, released: str, kept: str
) -> None:
    running = process(items)
    await running.store(refused(event("a", "one"), event("b", "two")), "i1", park=True)
    await process(items).store(refused(event("c", "three")), "i1", park=True)
    items.lags = True

    before = await running.holds()
    await release(items, released)
    after = await running.holds()
    items.lags = False

    assert (set(before.parked), set(after.parked)) == ({"one", "two"}, {kept})
    assert (await running.holds()).parked.keys() == {kept, "three"}


class TouchedItems(InMemoryItems):
    """A store at which another attempt goes on before an answer to `touch` arrives."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        try:
            await super().touch(identifier, partition_key)
        finally:
            step, self.meanwhile = self.meanwhile, None
            if step is not None:
                await step()


async def test_attempts_at_the_same_time_may_both_find_that_a_key_was_released() -> None:
    items = TouchedItems()
    running = process(items)
    await running.store(refused(event("a", "one")), "i1", park=True)
    await release(items, "one")
    items.meanwhile = running.holds

    assert (await running.holds()).parked == {}


async def test_a_key_that_is_parked_again_while_its_release_is_found_stays_known() -> None:
    items = TouchedItems()
    running = process(items)
    await running.store(refused(event("a", "one")), "i1", park=True)
    await release(items, "one")
    items.lags = True
    items.meanwhile = partial(running.store, refused(event("b", "one")), "i2", park=True)

    found = [(await running.holds()).parked.keys() for _ in range(2)]

    assert found == [{"one"}, {"one"}]


async def test_a_second_poison_does_not_move_the_place_from_which_its_key_is_parked(items: InMemoryItems) -> None:
    first, second, third = (each | {"_lsn": lsn} for lsn, each in enumerate(events("k", 3), start=5))
    running = process(items)
    await running.store([*refused(first), *parked(second)], "i1", park=True)
    await running.store(refused(third), "i2", park=True)

    assert (await process(items).holds()).parked == {"k": Place(lsn=5)}
    items.lags = True
    assert (await running.holds()).parked == {"k": Place(lsn=5)}


async def test_a_key_that_is_parked_already_is_known_once_something_is_stored_behind_it(
    items: InMemoryItems,
) -> None:
    first, second = events("k", 2)
    await process(items).store(refused(first), "i1", park=True)
    running = process(items)
    await running.store(parked(second), "i2", park=True)
    items.lags = True

    assert (await running.holds()).parked.keys() == {"k"}


async def test_only_the_event_that_an_order_names_fulfils_it_for_whatever_reason_it_is_set_aside(
    items: InMemoryItems,
) -> None:
    await items.create(holds.order_item("k", "e"))

    await process(items).store(refused(event("other", "k"), event("e", "another")), "i1")
    assert pending(await process(items).holds()) == {("k", "e")}
    await process(items).store(refused(event("e", "k")), "i1")
    assert pending(await process(items).holds()) == set()


class Replica(InMemoryItems):
    """A store whose reads are answered by a replica that has an item once the reader has written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[tuple[str, str]] = set()

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        await super().touch(identifier, partition_key)
        self._known.add((identifier, partition_key))

    async def read(self, identifier: str, partition_key: str, /) -> Stored:
        if (identifier, partition_key) not in self._known:
            raise ItemNotFound("the replica does not have it yet")
        return await super().read(identifier, partition_key)


async def test_an_order_that_the_replica_does_not_have_yet_is_carried_out() -> None:
    items = Replica()
    items.put(holds.order_item("k", "e"))

    await process(items).store(refused(event("e", "k")), "i1")

    held = await process(items).holds()
    assert [order.carried_out for order in held.orders["k", "e"]] == [True]


@pytest.mark.parametrize("park", [False, True])
async def test_what_cannot_be_written_fails_and_says_why(items: InMemoryItems, park: bool) -> None:
    failure = StoreError("the container 'aside' cannot be written. Check it.")
    items.answers = [failure]

    with pytest.raises(QuarantineError) as raised:
        await process(items).store(refused(event("a", "k"), event("b", "k")), "i1", park=park)

    said = "2 document(s) must be quarantined, but the container 'aside' cannot be written. Check it."
    assert str(raised.value) == said
    assert raised.value.__cause__ is failure
    assert await records(items) == []


@pytest.mark.parametrize("park", [False, True])
async def test_documents_without_a_key_and_parts_of_one_are_checked_before_they_are_written(
    items: InMemoryItems, park: bool
) -> None:
    large = event("large", "k", text="x" * 2_200_000)
    keyless = [Rejected(plain({"id": name}), Reason.PARTITION_KEY_MISSING, "") for name in ("x", "y")]

    for rejected, writes in ((keyless, 1), (refused(large), 2)):
        checks = 0

        def check() -> None:
            nonlocal checks
            checks += 1
            if checks > writes:  # noqa: B023 - called within the loop
                raise StaleClearanceError("the process was stopped")

        with pytest.raises(StaleClearanceError):
            await process(items).store(rejected, "i1", park=park, check=check)

    # Of the large one, its batch was refused, and its first part is the last that was written.
    kinds = [item["type"] for item in items.stored]
    assert kinds == ["quarantinedEvent", "quarantinedEventPart"]


async def test_a_batch_that_is_refused_says_why(items: InMemoryItems) -> None:
    items.answers = [BatchFailed(2, ItemTooLarge("an item has 2 MB at most"))] * 3

    with pytest.raises(QuarantineError, match="must be quarantined, but an item has 2 MB at most"):
        await process(items).store(refused(event("a", "k")), "i1")


async def test_an_order_that_cannot_be_removed_fails_the_attempt(items: InMemoryItems) -> None:
    await items.create(holds.order_item("k", "e"))
    items.answers = [None, StoreError("busy")]

    with pytest.raises(QuarantineError, match="busy"):
        await process(items).store([rejection(event("e", "k"), Reason.SET_ASIDE)], "i1")


@pytest.mark.parametrize("before", [[], [None]], ids=["the query", "a parked key"])
async def test_what_is_held_back_has_to_be_known(items: InMemoryItems, before: list[Exception | None]) -> None:
    running = process(items)
    await running.store(refused(event("a", "k")), "i1", park=True)
    items.lags = True
    items.answers = [*before, StoreError("no")]

    with pytest.raises(QuarantineError, match="orders to set events aside must be read, but no"):
        await running.holds()

    assert (await running.holds()).parked.keys() == {"k"}
