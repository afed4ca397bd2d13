"""The campaign's checker on histories, liveness and the operator, and the judgement of a soak."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local.chaos import schedule
from local.chaos.command import ERRORS, is_right
from local.chaos.history import BEHIND, Aside, History, Policy, Receipt, Verdict
from local.chaos.liveness import Phase, bound_s, standing
from local.chaos.operators import Logs, Operator, named_in
from local.soak.judgement import Judgement

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


# Liveness and the operator: what is named is found, what stands is named, and a late end is a restart


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("To set it aside: python -m relay quarantine add contact-3 g2", [("contact-3", "g2")]),
        ("… Run `python -m relay quarantine add 'kéy 1' e-4-1`, and it goes on", [("kéy 1", "e-4-1")]),
        ("python -m relay quarantine add k e1. The retry policy …", [("k", "e1")]),
        ("`python -m relay quarantine add KEY ID`, and its key goes on without it", []),
        ("  'kéy-1': 3 event(s): the event 'e-2' can never be published (x), and …", [("kéy-1", "e-2")]),
        ("python -m relay quarantine add 'k", []),
        ("the partition key 'k' waits", []),
    ],
)
def test_the_operator_reads_what_is_blocked_from_the_error(line: str, named: list[tuple[str, str]]) -> None:
    assert list(named_in(line)) == named


def an_operator(folder: Path, *, hasty: bool = False) -> Operator:
    return Operator({}, Logs(folder), History(), Policy.SKIP, hasty)


def test_only_new_whole_lines_of_what_relays_are_read(tmp_path: Path) -> None:
    log = tmp_path / "functions-1.log"
    log.write_text("python -m relay quarantine add k old\n")
    operator = an_operator(tmp_path)
    (tmp_path / "cosmos.log").write_text("python -m relay quarantine add k other\n")

    with log.open("a") as more:
        more.write("python -m relay quarantine add k new\npython -m relay quarantine add k unfin")
    operator.read()

    assert operator.named.keys() == {("k", "new")}
    with log.open("a") as more:
        more.write("ished\n")
    operator.read()
    assert operator.named.keys() == {("k", "new"), ("k", "unfinished")}
    assert operator.named["k", "new"].by == "functions-1"


def test_a_patient_operator_waits_and_a_hasty_one_does_not(tmp_path: Path) -> None:
    patient, hasty = an_operator(tmp_path), an_operator(tmp_path, hasty=True)
    (tmp_path / "worker-1.log").write_text("python -m relay quarantine add k e1\n")
    patient.read()
    hasty.read()

    assert patient._due() == []
    assert hasty._due() == [("k", "e1")]
    patient.named["k", "e1"].first_s -= 60
    assert patient._due() == [("k", "e1")]
    patient.aside.ordered.add("e1")
    assert patient._due() == []  # an order is given once: it is to hold


def test_what_stands_names_the_first_event_of_a_key_the_process_and_the_lease(tmp_path: Path) -> None:
    operator = an_operator(tmp_path)
    (tmp_path / "functions-2.log").write_text("python -m relay quarantine add k e1\n")
    operator.read()
    operator.aside.ordered.add("e1")

    lines = "\n".join(standing({"k": ["e1", "e2"]}, operator, ["lease 0: owner functions-2"], 1))

    assert "2 event(s) of 1 partition key(s)" in lines
    assert "'k': 2 event(s), the first is 'e1'" in lines
    assert "functions-2 named 'e1' of 'k'" in lines
    assert "setting it aside was ordered" in lines
    assert "lease 0: owner functions-2" in lines
    assert "1 message(s)" in lines


def test_where_no_error_names_an_event_that_is_said(tmp_path: Path) -> None:
    assert "  no error names an event that blocks them" in standing({"k": ["e1"]}, an_operator(tmp_path), [], 0)


def test_a_process_that_ends_after_the_faults_was_restarted() -> None:
    now = 0.0
    phase = Phase(lambda: now)
    phase.ended("killed by a fault")
    assert not phase.is_overdue

    phase.begin(bound_s(30, backlog=100))
    phase.ended("killed by the last fault")
    now = 20.0
    phase.ended("functions-1")

    assert phase.restarts == ["functions-1"]
    assert not phase.is_overdue
    now = 32.5
    assert phase.is_overdue


RIGHT = dict.fromkeys(ERRORS, 0) | {"live": True, "quarantined": 2, "expected_quarantined": 2}


@pytest.mark.parametrize("wrong", [{name: 1} for name in ERRORS] + [{"live": False}, {"quarantined": 3}])
def test_any_error_fails_a_campaign(wrong: dict[str, int | bool]) -> None:
    assert is_right(RIGHT)
    assert not is_right(RIGHT | wrong)


def test_the_faults_of_single_events_last_and_are_drawn_from_the_seed() -> None:
    plans = schedule.standing(3, ("refused-events", "ending-events", "throttle"))

    assert [plan["message_id"] for plan in plans] == ["e-refused-*", "e-ending-*"]
    assert plans == schedule.standing(3, ("refused-events", "ending-events"))
    assert schedule.draw(3, events=10, faults=5, among=["refused-events"]) == []


def test_records_that_were_discarded_count_as_set_aside(tmp_path: Path) -> None:
    operator = an_operator(tmp_path)
    operator.aside.records["e1"] = "data-not-object"
    operator.aside.ordered.add("e2")

    assert operator.found({"e3": "set-aside"}) == Aside({"e1": "data-not-object", "e3": "set-aside"}, {"e2"})


MIB = 2**20


@pytest.mark.parametrize(
    ("missing", "rss_mib", "flat", "passed"),
    [
        (0, [100, 130, 131, 136], True, True),
        (0, [100, 130, 131, 137], False, False),
        (0, [100, 130], False, False),
        (1, [100, 130, 130], True, False),
        (-1, [100, 130, 130], True, False),
    ],
    ids=["flat", "grown", "too few samples", "one is missing", "one is there twice"],
)
def test_a_soak_passes_only_if_memory_is_flat_and_everything_is_there_once(
    missing: int, rss_mib: list[int], flat: bool, passed: bool
) -> None:
    judgement = Judgement.of(300, missing, 1.0, [size * MIB for size in rss_mib])

    assert (judgement.flat, judgement.passed) == (flat, passed)
    assert judgement.summary()["missing"] == missing
