"""Several processes and an operator at the quarantine at the same time: steps of `verification/spec/Park.tla`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from outbox_relay.operator.cli.quarantine_admin import Ordered, QuarantineAdmin
from relay.config.settings import OnPoison
from relay.core.documents import StoredDocument
from relay.core.errors import QuarantineError, StoreError
from relay.core.holds import KEPT_S, Holds, order_id
from relay.core.pipeline import Relay
from relay.core.place import Place
from relay.quarantine.items import Filter, Operation
from relay.quarantine.quarantine import StoredQuarantine
from tests.support.commits import commit_time
from tests.support.in_memory import InMemoryPublisher, InMemorySource
from tests.support.in_memory_items import InMemoryItems
from tests.support.in_memory_outbox import InMemoryOutbox

Step = Callable[[], Awaitable[object]]


class SharedItems(InMemoryItems):
    """A store at which others go ahead: before the next batch or deletion, or after the next reading."""

    def __init__(self) -> None:
        super().__init__()
        self.before_batch: Step | None = None
        self.before_delete: Step | None = None
        self.after_reading: Step | None = None

    async def batch(self, partition_key: str, operations: Sequence[Operation], /) -> None:
        step, self.before_batch = self.before_batch, None
        if step is not None:
            await step()
        await super().batch(partition_key, operations)

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        step, self.before_delete = self.before_delete, None
        if step is not None:
            await step()
        await super().delete(identifier, partition_key, etag=etag)

    async def holds(self) -> Holds:
        found = await super().holds()
        step, self.after_reading = self.after_reading, None
        if step is not None:
            await step()
        return found


class World:
    """An outbox, a topic and a quarantine, the processes that share them, and an operator."""

    def __init__(self, on_poison: OnPoison) -> None:
        self.source = InMemorySource()
        self.topic: dict[str, list[str]] = {}
        self.items = SharedItems()
        self.operator = QuarantineAdmin(self.items)
        self._on_poison = on_poison

    def process(self) -> Relay[Sequence[StoredDocument]]:
        return Relay(
            self.source,
            InMemoryPublisher(self.topic),
            StoredQuarantine(self.items),
            duplicate_window_s=600,
            on_poison=self._on_poison,
        )

    async def quarantined(self) -> list[str | None]:
        return [summary.document_id for summary in await self.operator.find(Filter())]

    async def discard_all(self) -> None:
        for summary in await self.operator.find(Filter()):
            await self.operator.remove(summary)
        await self.operator.unpark("k")


def document(identifier: str, lsn: int, **changes: Any) -> dict[str, Any]:
    made = {"id": identifier, "partitionKey": "k", "type": "domainEvent", "_lsn": lsn}
    return made | {"committedAt": commit_time() - 10, "data": {"action": "A"}} | changes


POISON = document("e1", 1, data=7)
MENDED = document("e1", 1)
SECOND = document("e2", 2)


@pytest.mark.parametrize("policy", [OnPoison.SKIP, OnPoison.PARK])
async def test_a_process_that_is_late_stores_nothing_that_an_operator_has_discarded(policy: OnPoison) -> None:
    world = World(policy)

    async def others() -> None:
        await world.process().handle([POISON], "i2")
        await world.discard_all()

    world.items.before_batch = others
    # With `park`, the attempt fails and the next one looks again.
    with suppress(QuarantineError):
        await world.process().handle([POISON], "i1")

    assert await world.quarantined() == []
    assert await world.operator.parked() == {}


@pytest.mark.parametrize("policy", [OnPoison.SKIP, OnPoison.PARK])
async def test_a_process_that_is_late_stores_nothing_that_was_removed_before_the_checkpoint_passed_it(
    policy: OnPoison,
) -> None:
    """It compared its page with the checkpoint before; the order that holds the event must outlast that."""
    world = World(policy)

    async def others() -> None:
        await world.process().handle([POISON, SECOND], "i2")
        await world.discard_all()
        world.source.passed_lsn = 2
        # A repeated attempt reads the orders, compares them with the checkpoint, and may remove them.
        for number in range(3):
            await world.process().handle([document("e9", 9)], f"other {number}", 1)
        # The key is parked again, by another event.
        await world.process().handle([document("e10", 10, data=7)], "i3")

    world.items.before_batch = others
    with suppress(QuarantineError):
        await world.process().handle([POISON, SECOND], "i1")

    assert await world.quarantined() == ["e10"]


@pytest.mark.parametrize("is_known", [False, True], ids=["asks nobody", "asks the checkpoint"])
async def test_a_process_that_is_late_stores_nothing_that_was_removed_after_the_checkpoint_passed_it(
    is_known: bool,
) -> None:
    world = World(OnPoison.PARK)
    outbox = InMemoryOutbox() if is_known else None
    if outbox is not None:
        outbox.reach(2)

    async def others() -> None:
        await world.process().handle([SECOND], "i2")
        world.source.passed_lsn = 2
        (second,) = [each for each in await world.operator.find(Filter()) if each.document_id == "e2"]
        await world.operator.remove(second, outbox)
        for number in range(3):
            await world.process().handle([document("e9", 9)], f"other {number}", 1)

    await world.process().handle([POISON], "i0")
    world.items.before_batch = others
    with pytest.raises(QuarantineError, match="released or discarded while further ones were being stored"):
        await world.process().handle([SECOND], "i1")

    assert await world.quarantined() == ["e1", "e9"]
    order = (await world.items.holds()).orders["k", "e2"][0]
    assert (order.carried_out, order.passed_at is not None) == (True, True)


@pytest.mark.parametrize("policy", [OnPoison.SKIP, OnPoison.PARK])
async def test_a_process_that_is_killed_once_it_has_stored_an_event_leaves_its_order(policy: OnPoison) -> None:
    world = World(policy)
    # The reading of what is held back, and the first batch.
    world.items.answers = [None, None, *[StoreError("the process is killed")] * 9]
    with suppress(QuarantineError):
        await world.process().handle([POISON], "i1")
    world.items.answers.clear()
    await world.discard_all()

    # The cause was elsewhere, and is mended.
    outcome = await world.process().handle([MENDED], "i2")

    assert (outcome.superseded, world.topic) == (1, {})


async def test_events_behind_a_poisoned_one_are_stored_behind_it_and_have_no_orders() -> None:
    world = World(OnPoison.PARK)

    await world.process().handle([POISON, SECOND, document("e3", 3)], "i1")

    assert await world.quarantined() == ["e1", "e2", "e3"]
    assert set((await world.items.holds()).orders) == {("k", "e1")}
    # The marker, the record and its order; then the marker and the others, each with an order that comes and goes.
    assert world.items.batches == [3, 7]


async def test_what_was_parked_and_is_removed_neither_comes_back_nor_is_published_by_its_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(OnPoison.PARK)
    # Its page is not checkpointed: another key of it has failed, or its process was killed.
    await world.process().handle([POISON, SECOND], "i1")
    await world.discard_all()

    outcome = await world.process().handle([POISON, SECOND], "i2")

    assert (outcome.superseded, world.topic, await world.quarantined()) == (2, {}, [])
    world.source.passed_lsn = 2
    await world.process().handle([document("e3", 3)], "i3")
    later = time.time() + KEPT_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    await world.process().handle([document("e4", 4)], "i4")
    assert not (await world.items.holds()).orders
    assert world.topic == {"k": ["e3", "e4"]}


async def test_what_was_parked_and_is_removed_during_an_attempt_does_not_come_back() -> None:
    world = World(OnPoison.PARK)
    await world.process().handle([POISON, SECOND], "i1")

    async def discard_second() -> None:
        (second,) = [each for each in await world.operator.find(Filter()) if each.document_id == "e2"]
        await world.operator.remove(second)

    world.items.after_reading = discard_second
    with pytest.raises(QuarantineError, match="the next attempt"):
        await world.process().handle([POISON, SECOND], "i2")
    assert await world.quarantined() == ["e1"]

    outcome = await world.process().handle([POISON, SECOND], "i2", 1)

    assert (outcome.superseded, world.topic, await world.quarantined()) == (2, {}, ["e1"])


async def test_another_version_of_an_event_is_parked_behind_the_one_that_is_held() -> None:
    world = World(OnPoison.PARK)

    await world.process().handle([POISON, document("e1", 2), document("e3", 3)], "i1")

    assert await world.quarantined() == ["e1", "e1", "e3"]


@pytest.mark.parametrize("policy", list(OnPoison))
async def test_a_process_without_the_lease_publishes_nothing_whose_order_was_removed(
    policy: OnPoison, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(policy)
    owner, late = world.process(), world.process()
    await world.operator.order("k", "e1")
    await owner.handle([MENDED], "i1")
    await world.discard_all()
    world.source.passed_lsn = 1
    await owner.handle([SECOND], "i2")
    later = time.time() + KEPT_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    await owner.handle([SECOND], "i2", 1)
    assert not (await world.items.holds()).orders

    outcome = await late.handle([MENDED], "i3", 1)

    assert (outcome.superseded, world.topic) == (1, {"k": ["e2"]})


async def test_a_key_that_is_parked_between_reading_and_comparison_stays_in_order() -> None:
    world = World(OnPoison.PARK)

    async def others() -> None:
        await world.process().handle([POISON], "i2")
        world.source.passed_lsn = 1

    world.items.after_reading = others

    await world.process().handle([POISON, SECOND], "i1", 1)

    assert world.topic == {}
    assert await world.quarantined() == ["e1", "e2"]


async def test_an_order_that_is_removed_between_two_readings_still_holds() -> None:
    world = World(OnPoison.PARK)
    await world.process().handle([POISON, document("e2", 2, data=7)], "i1")
    world.source.passed_lsn = 1

    async def others() -> None:
        await world.discard_all()
        await world.items.delete(order_id("e2"), "k")

    world.items.after_reading = others

    outcome = await world.process().handle([POISON, SECOND], "i2", 1)

    assert (outcome.superseded, world.topic) == (2, {})


async def test_an_order_that_was_carried_out_is_not_withdrawn() -> None:
    world = World(OnPoison.BLOCK)
    await world.operator.order("k", "e1")
    (order,) = await world.operator.orders()
    await world.process().handle([POISON], "i1")

    assert not await world.operator.withdraw(order)

    outcome = await world.process().handle([MENDED], "i2", 1)
    assert (outcome.superseded, world.topic, await world.quarantined()) == (1, {}, ["e1"])


async def test_an_order_that_is_carried_out_while_it_is_withdrawn_stays() -> None:
    world = World(OnPoison.BLOCK)
    await world.operator.order("k", "e1")
    (order,) = await world.operator.orders()

    async def others() -> None:
        await world.process().handle([POISON], "i1")

    world.items.before_delete = others

    assert not await world.operator.withdraw(order)

    assert (await world.items.holds()).orders[("k", "e1")][0].carried_out


async def test_an_event_that_was_set_aside_already_is_not_ordered_again() -> None:
    world = World(OnPoison.SKIP)
    await world.process().handle([POISON], "i1")

    assert await world.operator.order("k", "e1", [Place(lsn=1)]) is Ordered.CARRIED_OUT
    await world.discard_all()

    await world.process().handle([POISON], "i2", 1)
    assert await world.quarantined() == []


async def test_another_version_of_an_event_that_was_set_aside_can_be_ordered() -> None:
    world = World(OnPoison.SKIP)
    await world.process().handle([POISON], "i1")

    assert await world.operator.order("k", "e1", [Place(lsn=2)]) is Ordered.NEW
    await world.process().handle([document("e1", 2)], "i2", 1)

    assert (await world.quarantined(), world.topic) == (["e1", "e1"], {})


async def test_an_order_that_is_carried_out_while_it_is_replaced_stays() -> None:
    world = World(OnPoison.SKIP)
    await world.process().handle([POISON], "i1")

    async def others() -> None:
        await world.process().handle([document("e1", 2, data=7)], "i2", 1)

    world.items.before_batch = others

    assert await world.operator.order("k", "e1", [Place(lsn=2)]) is Ordered.CARRIED_OUT


async def test_an_order_that_others_change_all_the_time_is_not_replaced() -> None:
    world = World(OnPoison.SKIP)
    await world.process().handle([POISON], "i1")
    version = 1

    async def others() -> None:
        nonlocal version
        version += 1
        world.items.before_batch = None
        await world.process().handle([document("e1", version, data=7)], f"i{version}", 1)
        world.items.before_batch = others

    world.items.before_batch = others

    with pytest.raises(StoreError, match="run the command again"):
        await world.operator.order("k", "e1")
