"""The campaign's checker on histories: each kind of error is counted, and a right history has none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from local.chaos.history import BEHIND, Aside, History, Policy, Receipt, Verdict

KEY = "k"
CLEAN = ("missing", "duplicated", "out_of_order", "altered", "quarantined_and_delivered")
ALL = (*CLEAN, "ahead_of_poison", "without_order")


def event(number: int) -> dict[str, Any]:
    data = {"action": "Created", "number": number}
    return {"id": f"e{number}", "partitionKey": KEY, "sequence": number, "data": data}


def receipt(number: int, *, copy: int = 0, processed: bool = True) -> Receipt:
    document = event(number)
    return Receipt(
        identifier=document["id"],
        key=KEY,
        sequence_number=100 * copy + number,
        delivery_count=0,
        body=json.dumps(document["data"]).encode(),
        subject="Created",
        sequence=number,
        processed=processed,
    )


def written(*numbers: int, poison: int | None = None) -> History:
    history = History()
    history.wrote(KEY, [event(number) for number in numbers])
    if poison is not None:
        history.wrote_poison(event(poison), frozenset({"data-not-object"}))
    return history


def judged(history: History, aside: Aside | None = None, policy: Policy = Policy.SKIP) -> dict[str, int]:
    verdict = history.judge(aside or Aside(), policy)
    assert (verdict.first_wrong is not None) == any(getattr(verdict, name) for name in ALL)
    return _errors(verdict)


def _errors(verdict: Verdict) -> dict[str, int]:
    return {name: getattr(verdict, name) for name in ALL if getattr(verdict, name)}


def receive(history: History, *numbers: int) -> History:
    for number in numbers:
        history.received(receipt(number))
    return history


@pytest.mark.parametrize("policy", Policy)
def test_a_key_that_arrives_whole_and_in_order_has_no_errors(policy: Policy) -> None:
    assert judged(receive(written(1, 2, 3), 1, 2, 3), policy=policy) == {}


def test_an_event_that_does_not_arrive_is_missing() -> None:
    assert judged(receive(written(1, 2, 3), 1, 3)) == {"missing": 1}


def test_an_event_behind_its_successor_is_out_of_order() -> None:
    assert judged(receive(written(1, 2, 3), 1, 3, 2)) == {"out_of_order": 1}


def test_a_second_copy_is_a_duplicate_and_a_redelivery_is_not() -> None:
    history = receive(written(1, 2), 1, 1, 2)
    assert judged(history) == {}

    history.received(receipt(1, copy=1))

    assert judged(history) == {"duplicated": 1}


def test_another_body_is_altered() -> None:
    history = receive(written(1, 2), 1)
    history.received(replace(receipt(2), body=b'{"action": "Created", "number": 2.0}'))

    assert judged(history) == {"altered": 1}


@pytest.mark.parametrize("policy", Policy)
def test_a_sound_event_that_was_set_aside_by_an_order_is_not_missing(policy: Policy) -> None:
    history = receive(written(1, 2, 3), 1, 3)
    aside = Aside({"e2": "set-aside"}, {"e2"})

    assert judged(history, aside, policy) == {}
    verdict = history.judge(aside, policy)
    assert (verdict.quarantined, verdict.expected_quarantined) == (1, 1)
    assert history.outstanding(aside) == {}


def test_a_sound_event_in_quarantine_without_an_order_is_missing() -> None:
    history = receive(written(1, 2, 3), 1, 3)
    aside = Aside({"e2": "message-refused"})

    verdict = history.judge(aside, Policy.SKIP)

    assert _errors(verdict) == {"missing": 1}
    assert (verdict.quarantined, verdict.expected_quarantined) == (1, 0)


def test_an_order_that_came_too_late_changes_nothing() -> None:
    history = receive(written(1, 2), 1, 2)

    verdict = history.judge(Aside({}, {"e2"}), Policy.BLOCK)

    assert _errors(verdict) == {}
    assert (verdict.quarantined, verdict.expected_quarantined) == (0, 0)


def test_what_is_in_quarantine_must_not_be_delivered_as_well() -> None:
    history = receive(written(1, 2), 1, 2)

    assert judged(history, Aside({"e2": "message-refused"})) == {"quarantined_and_delivered": 1}


@pytest.mark.parametrize(("order", "errors"), [((1, 2, 3), {}), ((1, 3, 2), {"out_of_order": 1})])
def test_what_was_delivered_before_its_order_was_carried_out_may_be_in_quarantine_too(
    order: tuple[int, ...], errors: dict[str, int]
) -> None:
    history = receive(written(1, 2, 3), *order)

    assert judged(history, Aside({"e2": "set-aside"}, {"e2"})) == errors


@pytest.mark.parametrize(
    ("policy", "errors"),
    [(Policy.SKIP, {}), (Policy.PARK, {"ahead_of_poison": 1}), (Policy.BLOCK, {"ahead_of_poison": 1})],
)
def test_later_events_are_held_back_until_the_poison_is_settled(policy: Policy, errors: dict[str, int]) -> None:
    # e1 may pass, as it is before the poison; e3 must wait until it is settled.
    early = receive(written(1, 3, poison=2), 1, 3)
    early.settling("e2")
    late = receive(written(1, 3, poison=2), 1)
    late.settling("e2")
    receive(late, 3)
    aside = Aside({"e2": "set-aside"}, {"e2"})

    assert judged(early, aside, policy) == errors
    assert judged(late, aside, policy) == {}


@pytest.mark.parametrize(("order", "errors"), [((1, 2), {}), ((1, 2, 3), {"ahead_of_poison": 1})])
def test_poison_without_a_sequence_is_before_the_event_that_it_names(
    order: tuple[int, ...], errors: dict[str, int]
) -> None:
    history = written(*order)
    history.wrote_poison(
        {**event(3), "id": "hostile-e3", "sequence": None, BEHIND: 3}, frozenset({"data-not-object"})
    )

    assert judged(receive(history, *order), Aside({"hostile-e3": "data-not-object"}), Policy.PARK) == errors


def test_poison_that_nobody_settled_holds_back_for_ever() -> None:
    history = receive(written(1, 3, poison=2), 1, 3)

    assert judged(history, Aside({"e2": "data-not-object"}), Policy.PARK) == {"ahead_of_poison": 1}


def test_under_block_nothing_is_set_aside_without_an_order() -> None:
    history = receive(written(1, poison=2), 1)

    assert judged(history, Aside({"e2": "data-not-object"}), Policy.BLOCK) == {"without_order": 1}
    assert judged(history, Aside({"e2": "set-aside"}, {"e2"}), Policy.BLOCK) == {}
    assert judged(history, Aside({"e2": "data-not-object"}), Policy.SKIP) == {}


def test_what_is_outstanding_is_what_was_neither_processed_nor_set_aside() -> None:
    history = receive(written(1, 3, 4, poison=2), 1)

    assert history.outstanding(Aside()) == {KEY: ["e3", "e4", "e2"]}
    # Parked behind the poison is not settled: it is to be released.
    parked = Aside({"e2": "data-not-object", "e3": "key-parked", "e4": "key-parked"})
    assert history.outstanding(parked) == {KEY: ["e3", "e4"]}
    receive(history, 3, 4)
    assert history.outstanding(Aside({"e2": "data-not-object"})) == {}


def test_a_message_that_was_given_back_is_not_processed() -> None:
    history = written(1)
    history.received(receipt(1, processed=False))

    assert judged(history) == {"missing": 1}
