"""A campaign's knowledge of its events, liveness and the operator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local.chaos import schedule
from local.chaos.command import ERRORS, is_right
from local.chaos.history import Aside, History, Receipt
from local.chaos.liveness import Phase, bound_s, standing
from local.chaos.operators import Logs, Operator, named_in
from local.chaos.recordings import Origin, Recorded
from verification.journal import entries
from verification.journal.checker import Policy
from verification.journal.entries import Entry, digest_of

KEY = "k"


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


def receive(history: History, *numbers: int) -> History:
    for number in numbers:
        history.received(receipt(number))
    return history


def test_what_is_outstanding_is_what_was_neither_processed_nor_set_aside() -> None:
    history = receive(written(1, 3, 4, poison=2), 1)

    assert history.outstanding(Aside()) == {KEY: ["e3", "e4", "e2"]}
    # Parked behind the poison is not settled: it is to be released.
    parked = Aside({"e2": "data-not-object", "e3": "key-parked", "e4": "key-parked"})
    assert history.outstanding(parked) == {KEY: ["e3", "e4"]}
    receive(history, 3, 4)
    assert history.outstanding(Aside({"e2": "data-not-object"})) == {}


def kinds(history: History) -> list[str]:
    return [entry.kind for entry in history.journal(Recorded(), [])]


def test_a_second_copy_has_its_effect_again_and_a_redelivery_has_not() -> None:
    history = receive(written(1), 1, 1)
    assert kinds(history) == ["committed", "handled"]

    history.received(receipt(1, copy=1))

    assert kinds(history) == ["committed", "handled", "handled"]


def test_a_message_that_was_given_back_has_no_effect() -> None:
    history = written(1)
    history.received(receipt(1, processed=False))

    assert kinds(history) == ["committed"]
    assert history.outstanding(Aside()) == {KEY: ["e1"]}


@pytest.mark.parametrize("body", [b'{"action": "Created", "number": 1.0}', b"{"])
def test_the_journal_tells_what_was_delivered_from_what_was_committed(body: bytes) -> None:
    history = receive(written(1, 2), 1)
    history.received(replace(receipt(2), body=body))
    [first, second, *handled] = history.journal(Recorded(), [])
    digests = [getattr(entry, "digest", "") for entry in (first, second, *handled)]

    assert digests[0] == digests[2]
    assert digests[1] != digests[3]


def test_a_record_that_the_operator_removes_was_discarded_and_others_were_released() -> None:
    history = written(2, poison=1)
    history.discarding(KEY, "e1")
    history.discarding(KEY, "e1")
    removed: list[Entry] = [entries.Released(at=2e9, key=KEY, id=each) for each in ("e1", "e2")]

    journal = history.journal(Recorded(entries=removed), [])

    found = [(entry.kind, getattr(entry, "id", "")) for entry in journal]
    assert found == [("committed", "e2"), ("committed", "e1"), ("discarded", "e1"), ("released", "e2")]
    assert [getattr(entry, "sound", None) for entry in journal[:2]] == [True, False]


def test_events_are_in_the_journal_in_the_order_of_the_source() -> None:
    """Writers know of a commit later, and of several in any order."""
    history = written(3, 1, 2)
    origins = {"e1": Origin(5.0, (1, 0), "05C1"), "e2": Origin(5.0, (2, 1), "05C1"), "e3": Origin(6.0, None, "")}

    journal = history.journal(Recorded(origins), [entries.Killed(at=5.5, by="p")])

    assert [getattr(entry, "id", entry.kind) for entry in journal] == ["e1", "e2", "killed", "e3"]
    assert journal[1] == entries.Committed(
        at=5.0, key=KEY, id="e2", position=(2, 1), digest=digest_of(event(2)["data"], "Created", 2), place="05C1"
    )


# Liveness and the operator: what is named is found, what stands is named, and a late end is a restart


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("To set it aside: python -m relay quarantine add contact-3 g2", ("contact-3", "g2")),
        ("To set the event aside: python -m relay quarantine add --stream s 'kéy 1' e-4-1", ("kéy 1", "e-4-1")),
        ("To set it aside: python -m relay quarantine add --stream other k e1", None),
        ("`python -m relay quarantine add KEY ID`, and its key goes on without it", None),
        ("python -m relay quarantine add 'k", None),
        ("the partition key 'k' waits", None),
    ],
)
def test_the_operator_reads_what_is_blocked_from_the_error(line: str, named: tuple[str, str] | None) -> None:
    assert named_in(line, "s") == named


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


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("ERROR relay.backends.sql.shard: relay_defect shard=1: KeyError at quarantine.py:36 (holds)", True),
        ("the invocation failed, and its 2 document(s) come again: KeyError at quarantine.py:36 (holds)", True),
        ("1 event(s) of 1 partition key(s) not accepted. DefectError: KeyError: 'k'. This is a defect", True),
        ("the invocation failed, and its 2 document(s) come again: CancelledError", False),
        ("the invocation failed, and its 2 document(s) come again: LeaseError: old events must be", False),
    ],
)
def test_an_exception_that_the_relay_does_not_foresee_is_read_as_a_defect(
    tmp_path: Path, line: str, is_one: bool
) -> None:
    logs = Logs(tmp_path)
    (tmp_path / "worker-1.log").write_text(f"{line}\n")

    assert list(logs.defects()) == ([f"worker-1: {line}"] if is_one else [])


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


def test_an_operator_checks_first_that_the_topic_accepts_other_events(tmp_path: Path) -> None:
    operator, hasty = an_operator(tmp_path), an_operator(tmp_path, hasty=True)
    (tmp_path / "worker-1.log").write_text("python -m relay quarantine add k e1\n")
    for each in (operator, hasty):
        each.read()
        each.named["k", "e1"].first_s -= 60
        each.refused = lambda: True
        each.read()

    assert operator._due() == []
    assert hasty._due() == [("k", "e1")]
    operator.refused = lambda: False
    operator.read()
    assert operator._due() == []  # it may have been named for that alone
    operator.named["k", "e1"].first_s -= 60
    assert operator._due() == [("k", "e1")]


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
