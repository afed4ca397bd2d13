"""The trace of operators' commands: page, JSON, timeline and `explain` say who did what, when and why."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from outbox_relay.operator.cli import explain
from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from outbox_relay.operator.console.backlog import DAYS, MOST, Removals
from outbox_relay.operator.console.formatting import Commands, written
from outbox_relay.operator.console.model import RemovedRecord
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from outbox_relay.operator.console.stream import encoded
from outbox_relay.operator.outcomes import OUTCOME_TYPE, Outcome, Removal, Removed
from relay.core.errors import StoreError
from relay.quarantine.items import Filter
from tests.support.console_deployment import Deployment
from tests.support.in_memory_items import InMemoryItems

# A day after the outcomes that `item` makes: 2026-02-10.
NOW = 1_770_681_600.0


def item(number: int, at: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"outcome:{number}",
        "partitionKey": "k",
        "type": OUTCOME_TYPE,
        "outcome": "discarded",
        "recordId": f"r{number}",
        "documentId": f"e{number}",
        "reason": "message-too-large",
        "quarantinedAt": "2026-02-09T00:00:00+00:00",
        "at": at,
        "by": "jo",
        "why": "a test order",
        **changes,
    }


def minute(number: int) -> str:
    return f"2026-02-09T{number // 60:02}:{number % 60:02}:00+00:00"


def numbers(removals: Removals) -> list[str]:
    return [each.record_id for each in removals.latest]


async def test_every_view_says_who_removed_a_record_when_and_why() -> None:
    relayed, why = Deployment(), "the order was a test, see <ticket> 7"
    records = QuarantineAdmin(relayed.items)
    for name in ("a", "b"):
        relayed.outbox.commit(name)
        relayed.quarantine(name)
    relayed.outbox.pass_all()
    first, second = await records.find(Filter())
    await records.remove(first, removal=Removal(Outcome.DISCARDED, "jo", why))
    await records.remove(second, removal=Removal(Outcome.RELEASED, "al"))

    snapshot = await relayed.observer.look()
    stored = {each.document_id: each for each in await records.removed("k")}
    timeline = Pages("t", ConsoleSettings(), Commands(), ()).timeline(
        await relayed.observer.timeline("k", 10, data=False)
    )
    section = Pages("t", ConsoleSettings(), Commands(), ()).sections(snapshot)["removals"]
    document = json.loads(encoded(snapshot))["removals"]

    assert {each.document_id for each in snapshot.removals} == {"a", "b"}
    for shown in snapshot.removals:
        kept = stored[shown.document_id]
        assert shown == RemovedRecord.of(kept)
        said = await explain._said(records, "k", shown.document_id or "")
        for text in (said or "", section, timeline):
            plain = text.replace("&lt;", "<").replace("&gt;", ">")
            assert kept.by in plain
            assert kept.why in plain
            assert str(kept.outcome) in plain.lower()
        assert written(kept.at) in section
        assert written(kept.at) in timeline
        assert {
            "record_id": kept.record_id,
            "partition_key": "k",
            "document_id": kept.document_id,
            "removal": {
                "outcome": str(kept.outcome),
                "at": kept.at,
                "reason": "message-too-large",
                "by": kept.by,
                "why": kept.why,
            },
        } in document


async def test_the_latest_removals_are_kept_and_each_once() -> None:
    items = InMemoryItems()
    removals = Removals(items)
    for number in range(MOST + 20):
        items.put(item(number, minute(number)))
    await removals.read(NOW)
    assert numbers(removals) == [f"r{number}" for number in range(MOST + 19, 19, -1)]

    # Within the overlap of two readings: written by a machine whose clock is behind.
    items.put(item(500, f"{minute(MOST + 18)[:17]}45+00:00"))
    await removals.read(NOW)

    assert numbers(removals)[:3] == [f"r{MOST + 19}", "r500", f"r{MOST + 18}"]
    assert len(numbers(removals)) == MOST


async def test_a_reading_does_not_repeat_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    items, asked = InMemoryItems(), []
    of_type = items.of_type

    async def noting(*arguments: Any, since: str | None = None) -> list[Any]:
        asked.append(since)
        return list(await of_type(*arguments, since=since))

    monkeypatch.setattr(items, "of_type", noting)
    removals = Removals(items)
    await removals.read(NOW)
    items.put(item(1, minute(1)))
    items.put(item(2, "2026-02-20T00:00:00+00:00"))
    await removals.read(NOW)
    await removals.read(NOW)

    # Of one whose clock is ahead, the reader's own time counts.
    assert asked == ["2026-02-03T00:00:00+00:00"] * 2 + ["2026-02-09T23:59:30+00:00"]
    assert numbers(removals) == ["r2", "r1"]
    assert DAYS == 7


async def test_a_removal_is_shown_when_the_number_of_records_changes_and_its_reading_may_fail() -> None:
    relayed = Deployment()
    relayed.now = NOW
    relayed.quarantine("a")
    await relayed.observer.look()
    relayed.items.put(item(1, minute(1)))
    assert (await relayed.observer.look()).removals == ()
    relayed.items.take("r0", "k")

    snapshot = await relayed.observer.look()

    assert [each.record_id for each in snapshot.removals] == ["r1"]
    assert not snapshot.known_of("removals").stale
    relayed.now += 31
    relayed.items.answers = [StoreError("no route to the store")] * 10
    failed = await relayed.observer.look()
    assert [each.record_id for each in failed.removals] == ["r1"]
    assert (failed.known_of("removals").at, failed.known_of("removals").stale) == (NOW, True)
    assert "operators' commands" in {each.what for each in failed.problems}


def test_what_operators_wrote_is_escaped_and_cut() -> None:
    pages = Pages("t", ConsoleSettings(), Commands(), ())
    relayed = Deployment()
    payload = "<img src=x onerror=alert(1)>"
    removed = RemovedRecord.of(
        _removed(by=payload * 20, why=payload * 20, partitionKey=payload, documentId=payload)
    )
    snapshot = relayed.observer.latest
    section = pages.sections(type(snapshot)(5, NOW, snapshot.flow, removals=[removed]))["removals"]

    assert "<img" not in section
    assert re.search("&lt;img src=x onerror=alert", section)
    assert len(section) < 4000


def _removed(**changes: Any) -> Removed:
    return Removed.of(item(1, minute(1), **changes))
