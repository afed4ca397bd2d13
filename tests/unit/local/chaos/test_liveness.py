"""Liveness and the operator: what is named is found, what stands is named, and a late end is a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.chaos import schedule
from local.chaos.command import ERRORS, is_right
from local.chaos.history import Aside, History, Policy
from local.chaos.liveness import Phase, bound_s, standing
from local.chaos.operators import Logs, Operator, named_in


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
