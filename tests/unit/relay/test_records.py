"""Quarantine records as rows: their summaries, their order, and which are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from relay.core.errors import StoreError, UsageError
from relay.quarantine.items import BatchFailed, ItemTooLarge, RecordSummary, in_order
from tests.support.in_memory_items import InMemoryItems

ROW: dict[str, Any] = {
    "id": "r",
    "partitionKey": "k",
    "reason": "message-refused",
    "detail": "said",
    "quarantinedAt": "2026-02-09T11:00:00.000000Z",
    "position": 3,
    "invocationId": "i1",
    "documentId": "d",
}


def summary(identifier: str, at: str, position: int = 0, key: str = "k", **place: int) -> RecordSummary:
    return RecordSummary.of(
        ROW | {"id": identifier, "quarantinedAt": at, "position": position, "partitionKey": key, **place}
    )


def ids(summaries: list[RecordSummary]) -> str:
    return "".join(each.id for each in summaries)


def test_a_head_has_what_its_row_has() -> None:
    assert RecordSummary.of(ROW).data() == {**ROW, "documentParts": 0}
    assert RecordSummary.of(ROW | {"documentParts": 2}).data() == {**ROW, "documentParts": 2}
    assert RecordSummary.of(ROW | {"documentId": 7}).document_id is None


@pytest.mark.parametrize(
    ("place", "committed"),
    [({}, None), ({"lsn": 5}, (5, 0)), ({"lsn": 5, "place": 2}, (5, 2)), ({"place": 2}, None)],
)
def test_where_a_document_was_committed_is_known_by_its_lsn(
    place: dict[str, int], committed: tuple[int, int] | None
) -> None:
    assert RecordSummary.of(ROW | place).committed == committed


def test_records_come_in_the_order_of_their_arrival() -> None:
    summaries = [
        *(summary("c", "2", 0, "a"), summary("b", "1", 1, "b")),
        *(summary("a", "1", 0, "c"), summary("d", "2", 1, "a")),
    ]

    assert ids(in_order(summaries)) == "abcd"


def test_those_of_a_key_come_in_the_order_of_their_commits_at_the_places_of_the_key() -> None:
    summaries = [
        *(summary("c", "1", lsn=7, place=1), summary("x", "2", key="other"), summary("b", "3", lsn=7, place=0)),
        *(summary("a", "4", lsn=5, place=9), summary("d", "5", lsn=8)),
    ]

    assert ids(in_order(summaries)) == "axbcd"


def test_a_key_of_which_one_place_is_not_known_keeps_the_order_of_arrival() -> None:
    summaries = [summary("a", "1", lsn=7), summary("b", "2"), summary("c", "3", lsn=5)]

    assert ids(in_order(summaries)) == "abc"


async def test_an_id_that_several_records_begin_with_names_none_and_lists_them(items: InMemoryItems) -> None:
    for number in range(12):
        items.put(ROW | {"id": f"abcdef00{number:02}", "type": "quarantinedEvent", "partitionKey": f"k{number}"})

    with pytest.raises(UsageError) as caught:
        await QuarantineAdmin(items).find_by_ids(["abcdef00"])

    first, *candidates, more = str(caught.value).splitlines()
    assert first == "12 records have an id that begins with 'abcdef00': give more of it"
    assert candidates == [
        f"  abcdef00{number:02}  2026-02-09T11:00:00Z  message-refused  partition key 'k{number}', document 'd'"
        for number in range(10)
    ]
    assert more == "  and 2 more"
    assert [each.id for each in (await QuarantineAdmin(items).find_by_ids(["abcdef0001"]))[0]] == ["abcdef0001"]


@pytest.mark.parametrize("parts", [0, 2])
async def test_the_document_of_a_record_that_is_gone_is_none(items: InMemoryItems, parts: int) -> None:
    gone = RecordSummary.of(ROW | {"documentParts": parts})

    assert await QuarantineAdmin(items).document(gone) is None


async def test_a_record_that_cannot_be_removed_is_an_error(items: InMemoryItems) -> None:
    items.answers = [BatchFailed(0, ItemTooLarge("refused"))]

    with pytest.raises(StoreError, match="refused"):
        await QuarantineAdmin(items).remove(RecordSummary.of(ROW))
