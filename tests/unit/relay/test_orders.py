"""When orders and parked keys are read, how long that may take, and when orders are removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from relay.config.settings import OnPoison
from relay.core import orders as module
from relay.core.errors import QuarantineError, StaleClearanceError
from relay.core.events import Event, EventName, Reason, Received, Rejected
from relay.core.fence import _STORABLE_S
from relay.core.holds import KEPT_S, Holds, Order
from relay.core.orders import Orders
from relay.core.place import Place
from tests.support import virtual_time
from tests.support.in_memory import InMemoryQuarantine, InMemorySource
from tests.support.outbox import event, rejected, sound
from tests.support.waiting import forever

X: EventName = ("k", "x")
Y: EventName = ("k", "y")


def page(*ids: str, lsn: int = 5) -> Received:
    """A page of events that were committed just now."""
    made = [sound(event(each, "k") | {"_lsn": lsn}, at) for at, each in enumerate(ids)]
    return Received([each._replace(committed_at=int(time.time())) for each in made])


def carried_out(lsn: int) -> Order:
    return Order(True, Place(lsn=lsn))


class Silent:
    """A source, or a quarantine, that answers `calls` times and then never."""

    def __init__(self, quarantine: InMemoryQuarantine, *, settled: bool) -> None:
        self.quarantine = quarantine
        self._settles = settled

    async def passed_positions(self, items: Sequence[Event | Rejected]) -> frozenset[int]:
        if not self._settles:
            await asyncio.sleep(1_000_000)
        return frozenset(range(len(items)))

    async def holds(self) -> Holds:
        return await self.quarantine.holds()

    def parked_here(self) -> Mapping[str, Place | None]:
        return self.quarantine.parked_here()

    async def store(self, *_: object, **__: object) -> None:
        pytest.fail("nothing is stored")

    async def note_passed(self, _: Mapping[EventName, Order], /, at: float) -> None:
        await asyncio.sleep(1_000_000)

    async def remove(self, _: Mapping[EventName, Order]) -> None:
        await asyncio.sleep(1_000_000)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("settled", [False, True], ids=["the checkpoint is silent", "the quarantine is silent"])
@pytest.mark.parametrize("policy", OnPoison)
def test_removing_orders_is_bounded_and_delays_nothing_else(policy: OnPoison, settled: bool) -> None:
    quarantine = InMemoryQuarantine()
    quarantine.held = {X: carried_out(1), Y: carried_out(9)}
    silent = Silent(quarantine, settled=settled)
    orders = Orders(silent, policy, silent.passed_positions)

    async def read() -> tuple[Holds, float]:
        began = time.monotonic()
        return await orders.for_attempt(page("x", "y"), "i1", 1), time.monotonic() - began

    found, seconds = virtual_time.run(read())

    # They go on holding, and whoever reads them next removes them.
    assert set(found.orders) == {X, Y}
    assert seconds == 10


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_reading_what_is_held_back_is_bounded(again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    quarantine = InMemoryQuarantine()
    monkeypatch.setattr(quarantine, "holds", forever)
    orders = Orders(quarantine, OnPoison.PARK, InMemorySource().passed_positions)

    async def read() -> float:
        with pytest.raises(QuarantineError, match="took longer than 20 s"):
            await (orders.reread(page("x")) if again else orders.for_attempt(page("x"), "i1", 0))
        return time.monotonic()

    assert virtual_time.run(read()) == 20


async def test_an_order_is_removed_once_its_event_is_known_to_be_passed_for_longer_than_anybody_may_store_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quarantine, source, began = InMemoryQuarantine(), InMemorySource(), time.time()
    quarantine.held = {X: carried_out(1), Y: carried_out(9)}
    quarantine.ordered = {("k", "z")}
    source.passed_lsn = 5
    orders = Orders(quarantine, OnPoison.SKIP, source.passed_positions)

    async def read_after(seconds: float) -> set[EventName]:
        monkeypatch.setattr(time, "time", lambda: began + seconds)
        found = await orders.for_attempt(page("x", "y", "z"), "i1", 1)
        assert set(found.orders) == {*quarantine.held, *quarantine.ordered}
        return set(quarantine.held)

    assert KEPT_S > _STORABLE_S
    assert await read_after(0) == {X, Y}
    # The checkpoint has passed it, whatever it says later.
    source.passed_lsn = 0
    assert await read_after(KEPT_S) == {X, Y}
    assert await read_after(KEPT_S + 1) == {Y}


async def test_the_checkpoint_is_asked_under_the_partition_key_about_orders_with_a_place() -> None:
    quarantine = InMemoryQuarantine()
    asked: list[tuple[str | None, object, int]] = []

    async def passed_positions(items: Sequence[Event | Rejected]) -> frozenset[int]:
        asked.extend((item.partition_key, item.document.lsn, item.position) for item in items)
        return frozenset()

    # The quarantine of an older version does not say where an event was.
    quarantine.held = {("k1", "x"): carried_out(1), ("k2", "without"): Order(True), ("k3", "y"): carried_out(9)}
    quarantine.ordered = {("k4", "z")}

    await Orders(quarantine, OnPoison.SKIP, passed_positions).for_attempt(page("x"), "i1", 1)

    assert asked == [
        ("k1", 1, 0),
        ("k3", 9, 1),
    ]
    assert len(quarantine.held) == 3


async def test_the_order_for_a_later_version_that_the_replica_does_not_show_yet_goes_on_holding() -> None:
    quarantine, source = InMemoryQuarantine(), InMemorySource()
    orders = Orders(quarantine, OnPoison.SKIP, source.passed_positions)
    later = event("x", "k") | {"_lsn": 9}
    await orders.store(rejected(Reason.SET_ASIDE, later), "i1", lambda: None)
    quarantine.held = {X: replace(carried_out(5), passed_at=1.0)}

    found = await orders.for_attempt(page("x", lsn=9), "i2", 1)

    assert quarantine.held == {}
    assert (True, Place(lsn=9)) in [(order.carried_out, order.place) for order in found.orders[X]]


async def test_nothing_is_stored_or_remembered_if_the_comparison_with_the_checkpoint_no_longer_counts() -> None:
    quarantine, source = InMemoryQuarantine(), InMemorySource()
    orders = Orders(quarantine, OnPoison.SKIP, source.passed_positions)

    def check() -> None:
        raise StaleClearanceError("the process was stopped")

    with pytest.raises(StaleClearanceError):
        await orders.store(rejected(Reason.SET_ASIDE, event("x", "k")), "i1", check)

    assert quarantine.records == []
    assert not (await orders.for_attempt(page("x"), "i1", 1)).orders


async def test_orders_hold_on_while_the_checkpoint_cannot_be_read() -> None:
    quarantine, source = InMemoryQuarantine(), InMemorySource()
    quarantine.held = {X: carried_out(1)}
    source.passed_lsn, source.broken = 5, True

    found = await Orders(quarantine, OnPoison.SKIP, source.passed_positions).for_attempt(page("x"), "i1", 1)

    assert set(found.orders) == {X}


async def test_an_order_that_is_removed_between_two_readings_goes_on_holding() -> None:
    quarantine = InMemoryQuarantine()
    quarantine.held = {X: carried_out(5)}
    orders = Orders(quarantine, OnPoison.PARK, InMemorySource().passed_positions)
    assert set((await orders.for_attempt(page("x", "y"), "i1", 0)).orders) == {X}

    # By another process, as the checkpoint has passed the event.
    quarantine.held = {Y: carried_out(5)}
    quarantine.parked = {"k": None}

    found = await orders.reread(page("x", "y"))
    assert (set(found.orders), set(found.parked)) == ({X, Y}, {"k"})


@pytest.mark.parametrize(
    "is_older", [False, True], ids=["a reading under way", "an older reading that ends later"]
)
async def test_a_key_that_is_parked_during_a_reading_is_parked(is_older: bool) -> None:
    """Leases that overlap give one process two pages with the same event, both at once.

    The second one knows that the event is set aside, and its reading began before the key was parked.
    """
    quarantine = InMemoryQuarantine()
    quarantine.held = {Y: carried_out(1)}
    asked, answered = asyncio.Event(), asyncio.Event()

    async def passed_positions(items: Sequence[Event | Rejected]) -> frozenset[int]:
        if not asked.is_set():
            asked.set()
            await answered.wait()
        return frozenset()

    orders = Orders(quarantine, OnPoison.PARK, passed_positions)
    other = asyncio.create_task(orders.for_attempt(page("x", "z"), "other", 0))
    await asked.wait()
    await orders.store(rejected(Reason.ACTION_NOT_STRING, event("x", "k") | {"_lsn": 5}), "one", lambda: None)
    if is_older:
        await orders.for_attempt(page("w"), "one", 1)
    answered.set()

    found = await other

    assert X in found.orders
    assert found.parked == {"k": Place(lsn=5)}
    # What is released is not parked for a reading that begins then.
    quarantine.parked = {}
    assert (await orders.for_attempt(page("z", lsn=6), "later", 0)).parked == {}


async def test_what_is_stored_behind_a_parked_event_is_remembered_though_its_key_is_released() -> None:
    quarantine = InMemoryQuarantine()
    quarantine.parked = {"k": None}
    orders = Orders(quarantine, OnPoison.PARK, InMemorySource().passed_positions)
    await orders.store(rejected(Reason.KEY_PARKED, event("x", "k")), "i1", lambda: None)
    quarantine.parked = {}

    found = await orders.for_attempt(page("x"), "i1", 1)

    assert [(name, order.carried_out) for name, (order,) in found.orders.items()] == [(X, True)]


async def test_what_could_not_be_stored_behind_a_parked_event_is_published_once_its_key_is_released() -> None:
    quarantine = InMemoryQuarantine()
    quarantine.parked = {"k": None}
    orders = Orders(quarantine, OnPoison.PARK, InMemorySource().passed_positions)
    quarantine.broken = True
    with pytest.raises(QuarantineError):
        await orders.store(rejected(Reason.KEY_PARKED, event("x", "k")), "i1", lambda: None)
    quarantine.broken, quarantine.parked = False, {}

    assert not await orders.for_attempt(page("x"), "i1", 1)


async def test_what_this_process_has_set_aside_it_knows_also_when_its_order_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quarantine, source = InMemoryQuarantine(), InMemorySource()
    orders = Orders(quarantine, OnPoison.SKIP, source.passed_positions)
    await orders.for_attempt(page("x"), "i1", 0)
    await orders.store(rejected(Reason.SET_ASIDE, event("x", "k") | {"_lsn": 5}), "i1", lambda: None)
    quarantine.broken = True
    # Not read again, so that a page costs no query.
    assert set((await orders.for_attempt(page("x"), "i1", 0)).orders) == {X}
    quarantine.broken = False
    source.passed_lsn = 5

    assert set((await orders.for_attempt(page("x"), "i1", 1)).orders) == {X}
    later = time.time() + KEPT_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert set((await orders.for_attempt(page("x"), "i1", 1)).orders) == {X}
    assert quarantine.held == {}


async def test_no_more_is_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 2)
    quarantine = InMemoryQuarantine()
    orders = Orders(quarantine, OnPoison.SKIP, InMemorySource().passed_positions)
    await orders.for_attempt(page("x"), "i1", 0)

    await orders.store(
        rejected(Reason.SET_ASIDE, *[event(each, "k") for each in ("1", "2", "3")]), "i1", lambda: None
    )

    assert set((await orders.for_attempt(page("1", "2", "3"), "i1", 0)).orders) == {("k", "2"), ("k", "3")}


@pytest.mark.parametrize(
    ("ages_s", "reads"),
    [((1,), 0), ((2,), 1), ((2, 0), 1), ((0, 2), 0)],
    ids=["young", "old", "oldest first", "not"],
)
async def test_a_page_whose_first_event_was_committed_two_seconds_ago_may_have_been_tried(
    ages_s: tuple[int, ...], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.time())
    monkeypatch.setattr(time, "time", lambda: float(now))
    quarantine = InMemoryQuarantine()
    orders = Orders(quarantine, OnPoison.SKIP, InMemorySource().passed_positions)
    events = page(*"xy"[: len(ages_s)]).events

    await orders.for_attempt(
        Received([each._replace(committed_at=now - age_s) for each, age_s in zip(events, ages_s, strict=True)]),
        "i1",
        0,
    )

    assert quarantine.reads == reads


async def test_an_invocation_that_is_not_remembered_may_have_been_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 1)
    orders = Orders(InMemoryQuarantine(), OnPoison.SKIP, InMemorySource().passed_positions)
    await orders.for_attempt(page("x"), "i1", 0)
    assert not orders.may_have_been_tried("i1")

    await orders.for_attempt(page("x"), "i2", 0)

    assert orders.may_have_been_tried("i1")


@pytest.mark.parametrize("policy", OnPoison)
async def test_a_quarantine_that_cannot_be_read_delays_only_what_may_be_in_it(
    policy: OnPoison, caplog: pytest.LogCaptureFixture
) -> None:
    quarantine = InMemoryQuarantine()
    quarantine.broken = True
    orders = Orders(quarantine, policy, InMemorySource().passed_positions)

    async def fails(received: Received, invocation_id: str, retry_count: int = 0) -> bool:
        try:
            await orders.for_attempt(received, invocation_id, retry_count)
        except QuarantineError:
            return True
        return False

    def warnings() -> int:
        return sum(getattr(each, "action", "") == "relay_orders_unavailable" for each in caplog.records)

    parks = policy is OnPoison.PARK
    # Nobody has attempted it. A process that has just started need not even ask.
    assert (await fails(page("x"), "i1"), warnings()) == (parks, 0)
    assert await fails(page("x"), "i1", 1)
    old = page("x")
    assert await fails(Received([each._replace(committed_at=int(time.time()) - 2) for each in old.events]), "i2")
    # Another process may have set it aside at once. For a while the quarantine is not asked again.
    invalid = Received([], rejected(Reason.DATA_NOT_OBJECT, event("x", "k")))
    assert (await fails(invalid, "i3"), await fails(invalid, "i4"), warnings()) == (parks, parks, 0)


def test_a_quarantine_that_cannot_be_read_is_warned_of_and_asked_again_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quarantine = InMemoryQuarantine()
    quarantine.held = {X: carried_out(5)}
    orders = Orders(quarantine, OnPoison.SKIP, InMemorySource().passed_positions)
    invalid = Received([], rejected(Reason.DATA_NOT_OBJECT, event("x", "k") | {"_lsn": 5}))

    async def held() -> list[EventName]:
        """Return the orders held back for an invalid document, which another process may have set aside."""
        return list((await orders.for_attempt(invalid, f"i{time.monotonic()}", 0)).orders)

    async def attempts() -> None:
        quarantine.broken = True
        assert await held() == []
        (warning,) = caplog.records
        assert warning.levelname == "WARNING"
        assert "so the latest reading counts for 30 s: " in warning.getMessage()
        assert getattr(warning, "action", "") == "relay_orders_unavailable"

        quarantine.broken = False
        await asyncio.sleep(29)
        assert await held() == []
        await asyncio.sleep(1)
        assert await held() == [X]
        assert len(caplog.records) == 1

    virtual_time.run(attempts())


async def test_documents_without_a_name_are_stored_once_however_often_the_attempt_is_cut_off() -> None:
    class CutOff(InMemoryQuarantine):
        """Stores one part in each attempt."""

        parts = 0

        async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, **options: Any) -> None:
            self.parts += 1
            if self.parts > 1:
                raise QuarantineError("cut off")
            await super().store(rejected, invocation_id, **options)

    quarantine = CutOff()
    orders = Orders(quarantine, OnPoison.SKIP, InMemorySource().passed_positions)
    documents = ({"id": f"e{number}", "type": "domainEvent"} for number in range(250))
    without_key = rejected(Reason.PARTITION_KEY_MISSING, *documents)
    assert without_key[0].name is None

    for _ in range(2):
        quarantine.parts = 0
        with pytest.raises(QuarantineError):
            await orders.store(without_key, "i1", lambda: None)
    quarantine.parts = 0
    await orders.store(without_key, "i1", lambda: None)

    assert [each.position for each in quarantine.records] == list(range(250))
