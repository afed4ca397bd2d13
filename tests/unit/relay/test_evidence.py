"""A refusal is the event's own fault once it is repeated, with something accepted in between."""

from __future__ import annotations

import pytest

from relay.events import DomainEvent
from relay.evidence import Evidence


def event(identifier: str) -> DomainEvent:
    return DomainEvent(identifier, "k", "A", {}, {})


def test_a_first_refusal_is_no_evidence_whatever_was_accepted_before() -> None:
    evidence = Evidence()
    evidence.accepted()

    assert not evidence.refused(event("e"))


def test_a_repeated_refusal_is_none_while_nothing_is_accepted() -> None:
    evidence = Evidence()

    assert [evidence.refused(event("e")) for _ in range(5)] == [False] * 5


def test_a_repeated_refusal_with_another_transfer_accepted_in_between_is() -> None:
    evidence = Evidence()
    evidence.refused(event("e"))
    evidence.accepted()

    assert evidence.refused(event("e"))
    assert not evidence.refused(event("other"))


def test_of_too_many_doubts_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.evidence._DOUBTS_AT_MOST", 2)
    evidence = Evidence()
    for identifier in "abc":
        evidence.refused(event(identifier))
    evidence.accepted()

    assert [evidence.refused(event(identifier)) for identifier in "bcbca"] == [True, True, True, True, False]
