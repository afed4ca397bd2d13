"""The quarantine that the commands build of a store's items."""

from __future__ import annotations

import json

import pytest

from outbox_relay.operator.cli.quarantine_admin import Ordered, QuarantineAdmin
from outbox_relay.operator.outcomes import Outcome, Removal
from relay.core import holds
from relay.core.documents import StoredDocument
from relay.core.place import Place
from relay.quarantine.items import Create, Filter, Items, RecordSummary, Touch
from tests.support.in_memory_outbox import InMemoryOutbox
from tests.support.outbox import event
from tests.support.stores import record


async def test_records_are_found_counted_and_removed(items: Items) -> None:
    records = QuarantineAdmin(items)
    for name, key, at in (("ab1", "k", "3"), ("ab2", "other", "1"), ("c0000000", "k", "2")):
        await items.create(record(name, key, at))

    found = await records.find(Filter())

    assert [each.id for each in found] == ["ab2", "c0000000", "ab1"]
    assert [each.id for each in await records.find(Filter(partition_key="k"), limit=1)] == ["c0000000"]
    assert await records.count(Filter("message-refused", "k")) == 2
    assert await records.count(Filter("set-aside")) == 0
    (named, missing) = await records.find_by_ids(["c0000000", "ffffffff"])
    assert ([each.document_id for each in named], missing) == (["document of c0000000"], ["ffffffff"])
    for _ in range(2):
        await records.remove(found[0])
    assert await records.document(found[0]) is None
    assert await stored(records, found[1]) == {"id": "document of c0000000"}


async def stored(records: QuarantineAdmin, summary: RecordSummary) -> StoredDocument:
    kept = await records.document(summary)
    assert kept is not None
    return kept.stored


async def test_a_record_in_parts_is_joined_and_removed_whole(items: Items) -> None:
    records = QuarantineAdmin(items)
    whole = record("r", documentParts=2)
    del whole["document"]
    await items.create(whole)
    for number, text in enumerate(['{"id": "d', 'oc"}']):
        part = {"id": f"r-{number}", "partitionKey": "k", "type": "quarantinedEventPart"}
        await items.create({**part, "text": text})
    (found,) = await records.find(Filter())

    assert (found.parts, found.document_id, await stored(records, found)) == (2, None, {"id": "doc"})
    await items.delete("r-0", "k")
    await records.remove(found)

    assert await items.of_type("quarantinedEvent", "k") == await items.of_type("quarantinedEventPart", "k") == []


@pytest.mark.parametrize("is_passed", [False, True], ids=["not passed", "passed"])
@pytest.mark.parametrize("parts", [0, 1])
async def test_what_was_parked_leaves_an_order_that_says_whether_the_relay_has_passed_it(
    items: Items, parts: int, is_passed: bool
) -> None:
    records, outbox = QuarantineAdmin(items), InMemoryOutbox()
    outbox.reach(9 if is_passed else 0)
    document = event("e", "k") | {"_lsn": 5}
    parked = record("r", reason="key-parked", document=document)
    if parts:
        del parked["document"]
        part = {"id": "r-0", "partitionKey": "k", "type": "quarantinedEventPart", "text": json.dumps(document)}
        await items.create(part)
        parked["documentParts"] = 1
    await items.create(parked)
    (found,) = await records.find(Filter())

    # Twice, as an answer may be lost.
    for _ in range(2):
        await records.remove(found, outbox)

    assert not await records.find(Filter())
    assert not await items.of_type("quarantinedEventPart", "k")
    (((name, (order,)),),) = [(await records.holds()).orders.items()]
    assert (name, order.carried_out, order.place) == (("k", "e"), True, Place(lsn=5))
    assert (order.passed_at is not None) == is_passed


async def test_a_key_stays_parked_while_it_has_a_record(items: Items) -> None:
    records = QuarantineAdmin(items)
    await items.create(holds.parked_marker_item("k", "r"))
    await items.create(record("r"))
    await items.create(record("s", "other"))

    assert list(await records.parked()) == ["k"]
    assert list(await records.parked("other")) == []
    assert await records.unpark("k") is False
    for found in await records.find(Filter(partition_key="k")):
        await records.remove(found)
    assert await records.unpark("k") is True
    assert await records.unpark("k") is True
    assert await records.parked() == {}


async def test_a_record_that_is_stored_while_a_key_is_unparked_keeps_it_parked(items: Items) -> None:
    class Overtaken(QuarantineAdmin):
        async def count(self, chosen: Filter) -> int:
            count = await super().count(chosen)
            await items.batch("k", [Touch(holds.PARKED_ID), Create(record("late"))])
            return count

    await items.create(holds.parked_marker_item("k", "r"))

    assert await Overtaken(items).unpark("k") is False
    assert list(await QuarantineAdmin(items).parked()) == ["k"]


async def test_an_order_is_written_once_and_withdrawn(items: Items) -> None:
    records = QuarantineAdmin(items)

    assert [await records.order("k", "e/1?"), await records.order("k", "e/1?")] == [Ordered.NEW, Ordered.PENDING]
    (order,) = await records.orders("k")
    assert (order["partitionKey"], order["eventId"]) == ("k", "e/1?")
    assert await records.orders("other") == []
    assert [await records.withdraw(order), await records.withdraw(order)] == [True, False]
    assert await records.orders() == []


async def test_a_removed_record_leaves_who_removed_it_when_and_why(items: Items) -> None:
    await items.create(record("r1", lsn=7, order=2) | {"documentId": "e"})
    records = QuarantineAdmin(items)
    (summary,) = await records.find(Filter())

    await records.remove(summary, removal=Removal(Outcome.DISCARDED, "jo", "a test order"))
    await records.remove(summary, removal=Removal(Outcome.RELEASED, "another", ""))

    (removed,) = await records.removed("k")
    assert (removed.outcome, removed.by, removed.why) == (Outcome.DISCARDED, "jo", "a test order")
    assert (removed.record_id, removed.document_id, removed.committed) == ("r1", "e", (7, 2))
    assert (removed.reason, await records.count(Filter())) == ("message-refused", 0)
    assert await records.removed("other") == []
