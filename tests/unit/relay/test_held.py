"""A record and the order that holds its event: stored at once, whatever is there and whoever changes it."""

from __future__ import annotations

from typing import Any

import pytest

from relay import holds
from relay.errors import StoreError
from relay.events import Reason, Rejected
from relay.quarantine.items import BatchFailed, ItemChanged, ItemTooLarge
from relay.quarantine.record import create_held, record_of
from tests.support.in_memory_items import InMemoryItems
from tests.support.outbox import event


def rejected(**data: Any) -> Rejected:
    return Rejected(event("x", "k", **data) | {"_lsn": 5}, Reason.MESSAGE_REFUSED, "", 0, "k")


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
    items.put(holds.order("k", "x"))

    assert await store(items, rejected())

    assert await orders(items) == [(True, 5)]
    assert len(items.stored) == 2


async def test_a_record_that_is_there_already_is_held_again(items: InMemoryItems) -> None:
    await store(items, rejected())
    # Its order was removed, as the checkpoint had passed it, and it comes once more.
    items.take(holds.order("k", "x")["id"], "k")

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
            order = holds.order("k", "x")
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
    [BatchFailed(0, ItemChanged("no")), BatchFailed(1, ItemChanged("no")), StoreError("the store is away")],
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
