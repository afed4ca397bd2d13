"""The events that wait: their order, and what is kept of those that do not wait any more."""

from __future__ import annotations

from typing import Any

from relay.console.backlog import Backlog
from relay.outbox import Committed


def event(identifier: str, place: int, **more: Any) -> Committed:
    values: dict[str, Any] = {
        "action": None,
        "committed_at": float(place),
        "created_at": None,
        "sequence": None,
        "traceparent": None,
        "partition": "0",
    }
    return Committed(identifier, "k", place=(place, 0), **(values | more))


def add(backlog: Backlog, *events: Committed) -> list[bool]:
    return [backlog.add(each, each.committed_at) for each in events]


def passed(backlog: Backlog, place: int, partition: str = "0") -> list[str]:
    return [each.name[1] for each in backlog.take(partition, (place, 9))]


def test_what_is_passed_leaves_in_the_order_of_the_feed() -> None:
    backlog = Backlog()
    add(backlog, event("c", 3), event("a", 1), event("b", 2), event("other", 1, partition="1"))

    assert passed(backlog, 2) == ["a", "b"]
    assert (len(backlog), len(backlog.within("0")), backlog.oldest("0"), backlog.partitions) == (
        2,
        1,
        3.0,
        {"0", "1"},
    )
    assert passed(backlog, 9) == ["c"]
    assert (backlog.oldest("0"), backlog.partitions) == (None, {"1"})


def test_an_event_that_moves_waits_at_its_new_place_alone() -> None:
    backlog = Backlog()

    assert add(backlog, event("a", 1), event("b", 2), event("a", 5), event("b", 3, partition="1")) == [
        *(True, True, False, False),
    ]

    assert passed(backlog, 4) == []
    assert (len(backlog.within("0")), len(backlog.within("1"))) == (1, 1)
    assert passed(backlog, 3, "1") == ["b"]
    assert passed(backlog, 5) == ["a"]


def test_it_is_known_when_the_first_event_is_deleted() -> None:
    backlog = Backlog()
    add(backlog, event("a", 1, expires_at=50.0), event("b", 2, expires_at=70.0), event("c", 3))
    assert backlog.expires_at() == 50.0

    passed(backlog, 1)
    assert backlog.expires_at() == 70.0

    passed(backlog, 2)
    assert backlog.expires_at() is None
