"""The parts of a key's timeline."""

from __future__ import annotations

from typing import Any

from outbox_relay.operator.console.model import Arrival, Delivery, Stage, Timeline
from outbox_relay.operator.console.timeline import KeyData, Seen, timeline
from relay.backends.outbox import Committed, Position
from relay.quarantine.items import RecordSummary

# 2026-01-01T00:00:00Z
START = 1_767_225_600.0


def event(identifier: str, lsn: int, **more: Any) -> Committed:
    values: dict[str, Any] = {
        "action": "Renamed",
        "committed_at": START + lsn,
        "created_at": None,
        "sequence": None,
        "traceparent": None,
        "partition": "0",
    }
    return Committed(identifier, "k", place=(lsn, 0), **(values | more))


def record(document_id: str | None, second: int, reason: str = "message-too-large", **more: Any) -> RecordSummary:
    values: dict[str, Any] = {"committed": None, "parts": 0, "id": f"record-of-{document_id}"}
    return RecordSummary(
        partition_key="k",
        reason=reason,
        detail="as the test says",
        quarantined_at=f"2026-01-01T00:00:{second:02}.000000+00:00",
        position=0,
        invocation_id="i",
        document_id=document_id,
        **(values | more),
    )


def at(lsn: int) -> dict[str, Position]:
    return {"0": Position("0", "host", str(lsn), (lsn, 9))}


def stages(found: Timeline) -> list[tuple[str, str]]:
    return [(each.id, str(each.stage)) for each in found.events]


def test_what_the_position_has_passed_is_published_and_the_rest_waits() -> None:
    known = KeyData(
        "k", [event("a", 1), event("b", 2), event("c", 3)], positions=at(2), seen=Seen({"b": 9.0, "c": 9.0})
    )

    found = timeline(known, 10)

    assert stages(found) == [("a", "published"), ("b", "published"), ("c", "committed")]
    assert [each.published_at for each in found.events] == [None, 9.0, None]
    assert (found.partition_key, found.partition, found.more) == ("k", "0", False)


def test_without_a_position_nothing_is_published_but_what_has_arrived() -> None:
    delivery = Delivery("a", "all", Arrival.WAITING, accepted_at=5.0)

    found = timeline(KeyData("k", [event("a", 1), event("b", 2)], deliveries=[delivery]), 10)

    assert stages(found) == [("a", "published"), ("b", "committed")]
    assert (found.events[0].published_at, found.events[0].deliveries) == (5.0, (delivery,))


def test_nothing_is_said_to_be_published_where_the_records_are_not_known() -> None:
    delivery = Delivery("b", "all", Arrival.WAITING)
    known = KeyData(
        "k",
        [event("a", 1), event("b", 2)],
        positions=at(2),
        judged=False,
        deliveries=[delivery],
        seen=Seen({"a": 9.0}),
    )

    found = timeline(known, 10)

    assert stages(found) == [("a", "committed"), ("b", "published")]
    assert found.events[0].published_at is None


def test_an_event_with_a_record_is_quarantined_or_parked_wherever_the_position_is() -> None:
    known = KeyData(
        "k",
        [event("a", 1), event("b", 2), event("in parts", 3)],
        positions=at(1),
        records=[record("a", 10), record("b", 11, "key-parked"), record(None, 12, committed=(3, 0))],
        parked_since="2026-01-01T00:00:10+00:00",
    )

    found = timeline(known, 10)

    assert stages(found) == [("a", "quarantined"), ("b", "parked"), ("in parts", "quarantined")]
    assert [each.quarantined and each.quarantined.reason for each in found.events] == [
        *("message-too-large", "key-parked", "message-too-large"),
    ]
    assert found.parked_since == "2026-01-01T00:00:10+00:00"


def test_an_event_that_is_only_in_quarantine_stands_where_it_was_committed() -> None:
    known = KeyData(
        "k",
        [event("a", 1), event("c", 3), event("e", 5)],
        positions=at(5),
        records=[record("b", 50, committed=(2, 0)), record("d", 4)],
    )

    found = timeline(known, 10)

    assert stages(found) == [
        *(("a", "published"), ("b", "quarantined"), ("c", "published"), ("d", "quarantined"), ("e", "published")),
    ]
    assert [each.id for each in found.events if each.event is None] == ["b", "d"]


def test_a_message_whose_event_is_gone_stands_before_what_was_committed_later() -> None:
    letters = [
        Delivery("b", "all", Arrival.DEAD_LETTERED, accepted_at=START + 1.5, reason="schema"),
        Delivery("b", "names", Arrival.WAITING, accepted_at=START + 1.4),
        Delivery("old", "all", Arrival.DEAD_LETTERED),
    ]

    found = timeline(KeyData("k", [event("a", 1), event("c", 2)], positions=at(2), deliveries=letters), 10)

    assert stages(found) == [*(("old", "published"), ("a", "published"), ("b", "published"), ("c", "published"))]
    assert (found.events[2].published_at, len(found.events[2].deliveries)) == (START + 1.4, 2)


def test_only_the_last_are_shown_and_what_is_older_is_said_to_be_there() -> None:
    events = [event(str(number), number) for number in range(1, 6)]

    found = timeline(KeyData("k", events, records=[record("x", 59)]), 3)
    assert ([each.id for each in found.events], found.more) == (["4", "5", "x"], True)

    found = timeline(KeyData("k", events, more=True, records=[record("x", 59, committed=(0, 0))]), 5)
    assert ([each.id for each in found.events], found.more) == (["1", "2", "3", "4", "5"], True)


def test_gaps_are_counted_between_neighbours_and_unknown_events_fill_them() -> None:
    known = KeyData(
        "k",
        [
            event("a", 1, sequence=3),
            event("b", 2, sequence=4),
            event("c", 4, sequence=9),
            event("d", 5, sequence=9),
        ],
        records=[record("gone", 50, committed=(3, 0))],
    )

    found = timeline(known, 10)

    assert [(each.id, each.missing_before) for each in found.events] == [
        *(("a", 0), ("b", 0), ("gone", 0), ("c", 3), ("d", 0)),
    ]


def test_a_key_of_which_nothing_is_known_has_an_empty_timeline() -> None:
    found = timeline(KeyData("k", partition="7"), 10)

    assert (found.events, found.more, found.partition) == ((), False, "7")


def test_data_is_shown_where_it_was_read() -> None:
    found = timeline(KeyData("k", [event("a", 1), event("b", 2)], data={"a": "{}"}), 10)

    assert [each.data for each in found.events] == ["{}", None]
    assert found.events[0].stage is Stage.COMMITTED
