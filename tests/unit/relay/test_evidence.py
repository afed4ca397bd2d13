"""A process's record of the service, and the events that are not sent again."""

from __future__ import annotations

import pytest

from outbox_relay.emulators.testing import ManualClock
from relay.core.documents import SourceDocument
from relay.core.errors import PoisonError
from relay.core.events import Event
from relay.core.evidence import AcceptedLedger, Evidence
from relay.core.verdict import REFUSALS

ALIKE = PoisonError("no", condition="amqp:not-allowed")
OTHER = PoisonError("no", condition="amqp:invalid-field")


def event(identifier: str, key: str = "k") -> Event:
    return Event(identifier, key, "domainEvent", "A", {}, SourceDocument.plain({"id": identifier}))


def refusals(evidence: Evidence, identifier: str = "e", key: str = "k") -> int:
    return evidence.refused(event(identifier, key), ALIKE, evidence.fresh).refusals


def test_a_first_refusal_counts_whatever_was_accepted_before() -> None:
    evidence = Evidence(600)
    for identifier in "abc":
        evidence.accepted([event(identifier)])

    assert refusals(evidence) == 1


def test_refusals_with_nothing_accepted_in_between_count_once() -> None:
    evidence = Evidence(600)

    assert [refusals(evidence) for _ in range(5)] == [1] * 5


def test_refusals_with_something_accepted_in_between_are_counted() -> None:
    evidence = Evidence(600)
    found = []
    for _ in range(4):
        found.append(refusals(evidence))
        evidence.accepted([event("sound")])

    assert found == [1, 2, 3, 4]
    assert refusals(evidence, key="another") == 1


def test_a_repeat_is_something_accepted_but_nothing_new() -> None:
    evidence = Evidence(600)
    refusals(evidence)
    evidence.repeated()

    history = evidence.refused(event("e"), ALIKE, 0)

    assert (history.refusals, history.accepted) == (2, 0)


def test_once_something_refused_is_accepted_all_evidence_starts_anew() -> None:
    evidence = Evidence(600)
    refusals(evidence)
    refusals(evidence, "other")
    evidence.accepted([event("sound")])
    refusals(evidence)
    evidence.accepted([event("sound"), event("other")])

    assert refusals(evidence) == 1


def test_another_condition_starts_anew_too() -> None:
    evidence = Evidence(600)
    refusals(evidence)
    evidence.accepted([event("sound")])

    assert evidence.refused(event("e"), OTHER, 0).refusals == 1


def test_keys_refused_alike_are_counted_once_each_and_only_with_the_same_condition() -> None:
    evidence = Evidence(600)
    evidence.refused(event("e1", "a"), ALIKE, 0)
    for key, refusal in (("b", ALIKE), ("b", ALIKE), ("c", OTHER)):
        evidence.refused(event(f"{key}-{refusal.condition}", key), refusal, 0)

    assert evidence.refused(event("e1", "a"), ALIKE, 0).alike == 2


def test_what_was_refused_before_an_event_was_first_refused_is_not_alike_until_it_is_refused_again() -> None:
    evidence = Evidence(600)
    for key in "abcd":
        evidence.refused(event("e", key), ALIKE, 0)

    first = evidence.refused(event("e", "late"), ALIKE, 0)
    for key in "ab":
        evidence.refused(event("e", key), ALIKE, 0)
    second = evidence.refused(event("e", "late"), ALIKE, 0)

    assert (first.alike, second.alike) == (1, 3)


def test_keys_refused_alike_are_counted_until_they_outnumber_what_was_accepted() -> None:
    evidence = Evidence(600)
    for identifier in "abcd":
        evidence.accepted([event(identifier)])
    for key in "klmnopq":
        evidence.refused(event("e", key), ALIKE, 0)

    history = evidence.refused(event("e", "k"), ALIKE, 0)

    assert (history.alike, history.accepted) == (5, 4)


def test_what_is_settled_is_not_alike() -> None:
    evidence = Evidence(600)
    for key in "abc":
        evidence.refused(event("e", key), ALIKE, 0)
    evidence.forget(("b", "e"))

    assert evidence.refused(event("e", "a"), ALIKE, 0).alike == 2


def test_what_was_accepted_counts_from_the_attempt_of_the_first_refusal_on() -> None:
    evidence = Evidence(600)
    evidence.accepted([event("earlier")])
    began = evidence.fresh
    evidence.accepted([event("a")])
    evidence.accepted([event("b")])

    first = evidence.refused(event("e"), ALIKE, began)
    again = evidence.refused(event("e"), ALIKE, evidence.fresh)

    assert (first.accepted, again.accepted) == (2, 2)


def test_of_too_many_doubts_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.core.evidence._DOUBTS_AT_MOST", 2)
    evidence = Evidence(600)
    for _ in range(2):
        refusals(evidence, "b")
        refusals(evidence, "c")
        evidence.accepted([event("sound")])
    assert refusals(evidence, "a") == 1
    evidence.accepted([event("sound")])

    assert [refusals(evidence, identifier) for identifier in "cab"] == [3, 2, 1]


def test_an_event_is_repeated_only_within_half_the_window_of_its_acceptance() -> None:
    clock = ManualClock(1000.0)
    evidence = Evidence(600, clock)
    assert evidence.witness() is None
    evidence.accepted([event("a")], witness=event("a"))
    assert evidence.witness() == event("a")
    # A clock that was set back says nothing of how long ago it was.
    clock.now -= 0.5
    assert evidence.witness() is None

    clock.now += 299.5
    assert evidence.witness() == event("a")
    clock.now += 1
    assert evidence.witness() is None
    clock.now -= 400
    assert evidence.witness() is None


def test_the_latest_event_that_may_be_kept_is_the_one_to_repeat() -> None:
    evidence = Evidence(600)
    evidence.accepted([event("a")], witness=event("a"))
    evidence.accepted([event("b")], witness=event("b"))
    evidence.accepted([event("large")])

    assert evidence.witness() == event("b")


def test_without_a_window_nothing_is_repeated() -> None:
    evidence = Evidence(0)
    evidence.accepted([event("a")], witness=event("a"))

    assert evidence.witness() is None


def test_only_an_event_that_was_refused_with_nothing_accepted_since_needs_a_repeat() -> None:
    evidence = Evidence(600)
    assert not evidence.wants_repeat(event("e"))
    refusals(evidence)
    assert evidence.wants_repeat(event("e"))
    evidence.repeated()
    assert not evidence.wants_repeat(event("e"))


def test_an_event_that_was_refused_often_enough_needs_no_repeat() -> None:
    evidence = Evidence(600)
    for _ in range(REFUSALS - 1):
        refusals(evidence)
        assert evidence.wants_repeat(event("e"))
        evidence.repeated()
    refusals(evidence)

    assert not evidence.wants_repeat(event("e"))


def test_what_was_accepted_is_known_by_partition_key_and_id() -> None:
    ledger = AcceptedLedger()

    ledger.add([event("1", "a")])

    assert ledger.holds("a", "1")
    assert not ledger.holds("a", "2")
    assert not ledger.holds("b", "1")


def test_the_oldest_is_forgotten_beyond_the_capacity() -> None:
    ledger = AcceptedLedger(capacity=2)

    for identifier in ("1", "2", "1", "3"):
        ledger.add([event(identifier, "a")])

    assert len(ledger) == 2
    assert [ledger.holds("a", identifier) for identifier in ("1", "2", "3")] == [True, False, True]


def test_by_default_at_least_a_hundred_thousand_events_are_known() -> None:
    ledger = AcceptedLedger()

    ledger.add(event(str(number), "a") for number in range(100_002))

    assert all(ledger.holds("a", str(number)) for number in range(2, 100_002))
    assert len(ledger) <= 200_000
