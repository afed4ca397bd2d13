"""A refusal is the event's own fault once it is repeated, with something else accepted between each two."""

from __future__ import annotations

import pytest

from relay.events import Event
from relay.evidence import Evidence


def event(identifier: str, key: str = "k") -> Event:
    return Event(identifier, key, "domainEvent", "A", {}, {"id": identifier})


def test_a_refusal_is_no_evidence_whatever_was_accepted_before() -> None:
    evidence = Evidence()
    for identifier in "abc":
        evidence.accepted([event(identifier)])

    assert not evidence.refused(event("e"))


def test_a_repeated_refusal_is_none_while_nothing_is_accepted() -> None:
    evidence = Evidence()

    assert [evidence.refused(event("e")) for _ in range(5)] == [False] * 5


def test_three_refusals_with_another_transfer_accepted_between_each_two_are() -> None:
    evidence = Evidence()
    found = []
    for _ in range(4):
        found.append(evidence.refused(event("e")))
        evidence.accepted([event("sound")])

    assert found == [False, False, True, True]
    assert not evidence.refused(event("e", "another"))


def test_several_acceptances_between_two_refusals_are_one() -> None:
    evidence = Evidence()
    evidence.refused(event("e"))
    evidence.accepted([event("a")])
    evidence.accepted([event("b")])

    assert [evidence.refused(event("e")) for _ in range(3)] == [False] * 3


def test_once_something_refused_is_accepted_all_evidence_starts_anew() -> None:
    evidence = Evidence()
    evidence.refused(event("e"))
    evidence.refused(event("other"))
    evidence.accepted([event("sound")])
    evidence.refused(event("e"))
    evidence.accepted([event("sound"), event("other")])

    found = []
    for _ in range(3):
        found.append(evidence.refused(event("e")))
        evidence.accepted([event("sound")])
    assert found == [False, False, True]


def test_of_too_many_doubts_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.evidence._DOUBTS_AT_MOST", 2)
    evidence = Evidence()
    for _ in range(2):
        evidence.refused(event("b"))
        evidence.refused(event("c"))
        evidence.accepted([event("sound")])
    assert not evidence.refused(event("a"))
    evidence.accepted([event("sound")])

    assert [evidence.refused(event(identifier)) for identifier in "cab"] == [True, False, False]
