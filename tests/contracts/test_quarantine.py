"""The contract of every quarantine: the one in memory, and the container in Cosmos DB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from relay.core import holds
from relay.core.documents import SourceDocument
from relay.core.errors import QuarantineError, StaleClearanceError
from relay.core.events import Reason, Rejected
from relay.core.holds import Order
from relay.core.place import Place
from relay.core.ports import Quarantine
from relay.quarantine.quarantine import StoredQuarantine
from tests.support import stores
from tests.support.in_memory import InMemoryQuarantine
from tests.support.outbox import event, events, sound
from tests.support.stores import Store


class Harness(ABC):
    """One quarantine, as the relay and as an operator see it."""

    quarantine: Quarantine

    @abstractmethod
    async def records(self) -> list[tuple[str, str]]:
        """Document id and reason of each record, in order of arrival."""

    @abstractmethod
    async def order(self, key: str, identifier: str) -> None:
        """Ask for an event to be set aside."""

    @abstractmethod
    async def release(self, key: str) -> None:
        """Park a key no longer."""

    @abstractmethod
    async def break_down(self) -> None:
        """Nothing can be read or written from now on."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._held = self.quarantine = InMemoryQuarantine()

    async def records(self) -> list[tuple[str, str]]:
        return [(item.id, str(item.reason)) for item in self._held.records]

    async def order(self, key: str, identifier: str) -> None:
        self._held.ordered.add((key, identifier))

    async def release(self, key: str) -> None:
        self._held.parked.pop(key, None)

    async def break_down(self) -> None:
        self._held.broken = True


class InStore(Harness):
    """Over a store of items."""

    def __init__(self, store: Store) -> None:
        self.quarantine = StoredQuarantine(store.items)
        self._store = store

    async def records(self) -> list[tuple[str, str]]:
        found = await self._store.items.of_type("quarantinedEvent")
        ordered = sorted(found, key=lambda item: (item["quarantinedAt"], item["position"]))
        return [(item["document"]["id"], item["reason"]) for item in ordered]

    async def order(self, key: str, identifier: str) -> None:
        await self._store.others.create(holds.order_item(key, identifier))

    async def release(self, key: str) -> None:
        await self._store.others.delete(holds.PARKED_ID, key)

    async def break_down(self) -> None:
        await self._store.break_down()


@pytest.fixture(params=["whole in memory", *stores.OPEN])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with AsyncExitStack() as stack:
        if request.param == "whole in memory":
            made: Harness = InMemory()
        else:
            made = InStore(await stack.enter_async_context(stores.OPEN[request.param](request)))
        yield made
        await made.quarantine.close()


def rejected(*identifiers: str, reason: Reason = Reason.MESSAGE_REFUSED, key: str = "k") -> list[Rejected]:
    return [
        Rejected.of(sound(event(identifier, key), position), reason, "")
        for position, identifier in enumerate(identifiers)
    ]


def carried_out(item: Rejected) -> Order:
    return Order(carried_out=True, place=item.document.place)


async def test_what_is_rejected_is_stored_once_in_its_order(harness: Harness) -> None:
    items = rejected("b", "a", "c")

    await harness.quarantine.store(items, "i1", park=False)
    await harness.quarantine.store(items, "i1", park=False)

    assert await harness.records() == [(name, "message-refused") for name in "bac"]
    held = await harness.quarantine.holds()
    assert held.parked == {}
    assert held.orders == {item.name: (carried_out(item),) for item in items}


@pytest.mark.parametrize("park", [False, True])
async def test_nothing_more_is_written_once_the_check_raises(harness: Harness, park: bool) -> None:
    first, second = rejected("a", "b")
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 1:
            raise StaleClearanceError("the process was stopped")

    with pytest.raises(StaleClearanceError):
        await harness.quarantine.store([first, second], "i1", park=park, check=check)

    # Each of them is one write, with its order and its marker.
    assert await harness.records() == [("a", "message-refused")]
    assert (await harness.quarantine.holds()).orders.keys() == {first.name}


async def test_an_empty_list_needs_no_quarantine(harness: Harness) -> None:
    await harness.break_down()

    await harness.quarantine.store([], "i1", park=True)


async def test_the_first_record_parks_its_key_and_those_behind_it_are_stored(harness: Harness) -> None:
    first, second = rejected("a")[0], rejected("b", reason=Reason.KEY_PARKED)[0]

    await harness.quarantine.store([first], "i1", park=True)
    await harness.quarantine.store([second], "i2", park=True)

    assert (await harness.quarantine.holds()).parked.keys() == {"k"}
    assert await harness.records() == [("a", "message-refused"), ("b", "key-parked")]


async def test_behind_a_released_key_nothing_is_stored(harness: Harness) -> None:
    await harness.quarantine.store(rejected("a"), "i1", park=True)
    await harness.release("k")

    with pytest.raises(QuarantineError, match="released"):
        await harness.quarantine.store(rejected("b", reason=Reason.KEY_PARKED), "i2", park=True)

    assert await harness.records() == [("a", "message-refused")]
    assert (await harness.quarantine.holds()).parked == {}


async def test_keys_that_this_process_has_parked_are_known_until_their_release_is_read(
    harness: Harness,
) -> None:
    first, second = rejected("a", "b")

    await harness.quarantine.store([first], "i1", park=True)
    await harness.quarantine.store([replace(second, reason=Reason.KEY_PARKED)], "i2", park=True)
    await harness.quarantine.store(rejected("c", key="not parked"), "i3", park=False)
    await harness.release("k")

    assert harness.quarantine.parked_here() == {"k": first.document.place}
    await harness.quarantine.holds()
    assert harness.quarantine.parked_here() == {}


async def test_an_attempt_goes_on_where_the_one_before_it_broke_off(harness: Harness) -> None:
    first, *behind = rejected("a", "b", "c", "d")
    behind = [replace(item, reason=Reason.KEY_PARKED) for item in behind]
    await harness.quarantine.store([first, behind[0]], "i1", park=True)

    # The poison is one of a parked key now.
    await harness.quarantine.store([replace(first, reason=Reason.KEY_PARKED), *behind], "i1", park=True)

    assert await harness.records() == [("a", "message-refused"), *((name, "key-parked") for name in "bcd")]


async def test_a_record_from_before_parking_was_chosen_parks_its_key_too(harness: Harness) -> None:
    for park in (False, True):
        await harness.quarantine.store(rejected("a"), "i1", park=park)

    assert (await harness.quarantine.holds()).parked.keys() == {"k"}


async def test_a_document_without_a_key_parks_nothing(harness: Harness) -> None:
    keyless = Rejected(SourceDocument.plain({"id": "x", "partitionKey": 7}), Reason.PARTITION_KEY_NOT_STRING, "")

    await harness.quarantine.store([keyless, *rejected("a")], "i1", park=True)

    held = await harness.quarantine.holds()
    assert (set(held.parked), set(held.orders)) == ({"k"}, {("k", "a")})
    assert sorted(await harness.records()) == [("a", "message-refused"), ("x", "partition-key-not-string")]


@pytest.mark.parametrize("park", [False, True])
async def test_an_order_is_pending_until_its_event_is_stored_and_holds_until_it_is_forgotten(
    harness: Harness, park: bool
) -> None:
    await harness.order("k", "e/1?#")
    await harness.order("k", "e2")
    before = await harness.quarantine.holds()

    (item,) = rejected("e/1?#", reason=Reason.SET_ASIDE)
    await harness.quarantine.store([item], "i1", park=park)

    assert before.orders == {("k", "e/1?#"): (Order(),), ("k", "e2"): (Order(),)}
    after = await harness.quarantine.holds()
    assert after.orders == {("k", "e/1?#"): (carried_out(item),), ("k", "e2"): (Order(),)}
    (order,) = after.orders["k", "e/1?#"]
    await harness.quarantine.remove({("k", "e/1?#"): order})
    await harness.quarantine.remove({("k", "e/1?#"): order})
    assert (await harness.quarantine.holds()).orders == {("k", "e2"): (Order(),)}


async def test_what_is_known_to_be_passed_is_noted_in_its_order_which_goes_on_holding(harness: Harness) -> None:
    # More than a batch takes, of two keys.
    documents = [document for key in "xy" for document in events(key, 51)]
    items = [
        Rejected.of(sound(document, position), Reason.MESSAGE_REFUSED, "")
        for position, document in enumerate(documents)
    ]
    await harness.quarantine.store(items, "i1", park=True)
    orders = {name: order for name, (order,) in (await harness.quarantine.holds()).orders.items()}
    assert len(orders) == 102

    await harness.quarantine.note_passed(orders, at=1_000.5)
    noted = {name: order for name, (order,) in (await harness.quarantine.holds()).orders.items()}

    assert noted == {name: replace(order, passed_at=1_000.5) for name, order in orders.items()}
    await harness.quarantine.store(items, "i2", park=True)
    assert len(await harness.records()) == 102
    again = {name: order for name, (order,) in (await harness.quarantine.holds()).orders.items()}
    assert again == noted
    await harness.quarantine.remove(again)
    assert (await harness.quarantine.holds()).orders == {}


async def test_a_record_and_a_parked_key_say_where_their_event_is_in_the_feed(harness: Harness) -> None:
    (item,) = rejected("a")
    placed = replace(item, document=SourceDocument.plain({**item.document.stored, "_lsn": 7, "order": 1}))

    await harness.quarantine.store([placed], "i1", park=True)

    place = Place(lsn=7, order=1)
    held = await harness.quarantine.holds()
    assert (held.parked, held.orders) == ({"k": place}, {("k", "a"): (Order(True, place),)})


@pytest.mark.parametrize("park", [False, True])
async def test_an_event_that_is_set_aside_again_at_another_place_is_held_at_that_one(
    harness: Harness, park: bool
) -> None:
    (item,) = rejected("a")
    for lsn in (7, 9):
        placed = replace(item, document=SourceDocument.plain({**item.document.stored, "_lsn": lsn}))
        await harness.quarantine.store([placed], "i1", park=park)
        if lsn == 7:
            ((earlier,),) = (await harness.quarantine.holds()).orders.values()

    await harness.quarantine.note_passed({("k", "a"): earlier}, at=1_000.5)
    await harness.quarantine.remove({("k", "a"): earlier})

    assert (await harness.quarantine.holds()).orders == {("k", "a"): (Order(True, Place(lsn=9)),)}
    assert len(await harness.records()) == 2


async def test_a_quarantine_that_cannot_be_reached_fails_both_ways(harness: Harness) -> None:
    await harness.break_down()

    with pytest.raises(QuarantineError):
        await harness.quarantine.holds()
    with pytest.raises(QuarantineError):
        await harness.quarantine.store(rejected("a"), "i1", park=False)


async def test_many_documents_of_many_keys_keep_their_order(harness: Harness) -> None:
    # More of each key than a batch takes.
    documents = [document for key in "xy" for document in events(key, 101)]
    items = [
        Rejected.of(sound(document, position), Reason.MESSAGE_REFUSED, "")
        for position, document in enumerate(documents)
    ]

    await harness.quarantine.store(items, "i1", park=True)

    stored = [name for name, _ in await harness.records()]
    assert [[name for name in stored if name[0] == key] for key in "xy"] == [
        [f"{key}-{number}" for number in range(101)] for key in "xy"
    ]
