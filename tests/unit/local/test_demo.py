"""The demo: its checker, which detects every kind of error, its scenarios, and its subscriber."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from local.demo import command
from local.demo.accounts import Commit, plan
from local.demo.bookings import Bookings
from local.demo.processor import CLIENTS, EMULATORS, OTHERS, RELAY, shares
from local.demo.scenarios import Changes, Collision, Creation, Deletion, Step, scenarios
from local.demo.subscriber import Subscriber
from local.demo.summary import ERRORS, MATCHES, is_correct, lines
from local.demo.tally import Received, Tally
from local.program import PROGRAM
from outbox_relay import inbox
from samples.contacts.consumer.changes import Change
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.kept import InSqlite
from tests.support import programs


def event(number: int) -> dict[str, Any]:
    data = {"action": "A", "createdAt": "2021-09-22T11:07:37.3022907+02:00", "n": number}
    return {"id": f"e{number}", "partitionKey": "k", "type": "domainEvent", "data": data}


def message(number: int, **changes: Any) -> Received:
    source = event(number)
    fields = {
        "identifier": source["id"],
        "session": "k",
        "subject": "A",
        "body": json.dumps(source["data"]).encode(),
        "properties": {
            "type": "domainEvent",
            "createdAt": source["data"]["createdAt"],
            "cosmosTimestamp": 1,
        },
        "at": float(number) + 0.25,
    }
    return Received(**{**fields, **changes})


def tally_of(written: int, received: list[Received]) -> dict[str, Any]:
    tally = Tally()
    for number in range(written):
        tally.wrote(event(number), float(number))
    for one in received:
        tally.received(one)
    return tally.summary()


def test_a_correct_run_has_zero_errors_and_latencies() -> None:
    assert tally_of(3, [message(0), message(1), message(2)]) == {
        "written": 3,
        "delivered": 3,
        "missing": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "altered": 0,
        "p50_ms": 250.0,
        "p99_ms": 250.0,
    }


@pytest.mark.parametrize(
    ("received", "counted"),
    [
        ([message(0), message(2)], {"missing": 1}),
        ([message(0), message(1), message(2), message(1)], {"duplicated": 1}),
        ([message(0), message(2), message(1)], {"out_of_order": 1}),
        ([message(0), message(1, body=b'{"n":1}'), message(2)], {"altered": 1}),
        (
            [message(0, body=json.dumps({**event(0)["data"], "n": 0.0}).encode()), message(1), message(2)],
            {"altered": 1},
        ),
        ([message(0), message(1, subject="B"), message(2)], {"altered": 1}),
        ([message(0), message(1, properties={}), message(2)], {"altered": 1}),
        ([message(0), message(1), message(2), message(3)], {"altered": 1}),
        ([message(0), message(1, session="other"), message(2)], {"altered": 1}),
    ],
)
def test_each_error_is_counted(received: list[Received], counted: dict[str, int]) -> None:
    summary = tally_of(3, received)

    faults = {name: summary[name] for name in ("missing", "duplicated", "out_of_order", "altered")}
    assert {name: count for name, count in faults.items() if count} == counted


def test_rates_are_those_between_the_first_event_and_the_last() -> None:
    tally = Tally()
    for number in range(3):
        tally.wrote(event(number), float(number))
        tally.received(message(number, accepted_at=float(number) / 2, at=2.0 * number))

    # The broker's clock is behind the writer's for two of them: they took no time.
    assert tally.speed() == {
        "written_per_s": 1.5,
        "relayed_per_s": 3.0,
        "consumed_per_s": 0.8,
        "commit_to_topic_p50_ms": 0.0,
        "commit_to_topic_p99_ms": 0.0,
    }


def test_no_event_has_no_rate() -> None:
    assert set(Tally().speed().values()) == {None}


SUMMARY = {
    "written": 3,
    "delivered": 2,
    "missing": 1,
    "duplicated": 0,
    "out_of_order": 0,
    "altered": 0,
    "quarantined": 0,
    "balances_match": False,
    "written_per_s": 600.4,
    "relayed_per_s": None,
    "consumed_per_s": 590.0,
    "commit_to_topic_p50_ms": 40.0,
    "commit_to_topic_p99_ms": 400.0,
    "edge_cases": 7,
}


@pytest.mark.parametrize(
    ("share", "rate", "bound"),
    [
        (0.1, 600.0, "The writers' rate bounds this run: --rate 600."),
        (0.9, 600.0, "That bounds this run."),
        (0.1, 0.0, "Waiting for each other bounds this run."),
        # The writers do not keep up with it.
        (0.1, 900.0, "Waiting for each other bounds this run."),
    ],
)
def test_the_last_line_has_the_result_and_one_before_says_what_bounds_the_run(
    share: float, rate: float, bound: str
) -> None:
    said = list(lines({**SUMMARY, "processor": {"relay": share}}, rate))

    assert said[0].startswith("Writers 600 events/s, relay -, consumer 590.")
    assert said[1].endswith(bound)
    assert "The emulators did 7 times " in said[2]
    counts = "1 missing, 0 duplicated, 0 out of order, 0 altered, 0 quarantined"
    assert said[-1] == f"2 of 3 events arrived: {counts}; balances_match: no."


@pytest.mark.parametrize("as_json", [False, True])
async def test_the_terminal_has_the_result_and_the_log_what_libraries_say(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = {**SUMMARY, "processor": {"relay": 0.1}}

    async def ended(options: command.Options) -> dict[str, Any]:
        logging.getLogger("azure.servicebus").warning("Lost a session")
        return summary

    monkeypatch.setattr(command, "_demo", ended)
    words = ["--events", "3", "--logs", str(tmp_path), *(["--json"] if as_json else [])]

    assert await programs.run(PROGRAM, "demo", *words) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    if as_json:
        assert json.loads(printed.out) == summary
    else:
        assert printed.out.splitlines() == list(lines(summary, 600.0))
    assert "WARNING azure.servicebus: Lost a session" in (tmp_path / "demo.log").read_text(encoding="utf-8")


CORRECT = {"written": 3, "delivered": 3, **dict.fromkeys(ERRORS, 0), "balances_match": True}


@pytest.mark.parametrize(
    "wrong",
    [{"delivered": 2}, *({name: 1} for name in ERRORS), *({name: False} for name in MATCHES)],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_run_with_anything_wrong_is_not_correct(wrong: dict[str, Any]) -> None:
    assert is_correct(CORRECT, 3)
    assert not is_correct({**CORRECT, **wrong}, 3)


def test_what_a_part_used_is_counted_by_process_and_the_rest_is_that_of_other_programs() -> None:
    cores = os.cpu_count() or 1
    before = {(OTHERS, 0): 100.0, (RELAY, 1): 7.0, (RELAY, 2): 5.0}
    # Process 1 was killed, and 3 was started.
    after = {(OTHERS, 0): 100.0 + 8 * cores, (RELAY, 2): 5.0 + cores, (RELAY, 3): 2.0 * cores}

    assert shares(before, after, 10.0) == {
        RELAY: pytest.approx(0.3),
        EMULATORS: 0.0,
        CLIENTS: 0.0,
        OTHERS: pytest.approx(0.5),
    }


# The demo's accounts


class Ledger:
    """A ledger that keeps what was committed, and the events of it."""

    def __init__(self) -> None:
        self.stored: dict[str, int] = {}
        self.messages: list[inbox.Message] = []

    async def apply(self, commit: Commit) -> None:
        amounts = [*([0] if commit.owner is not None else []), *(booking.amount for booking in commit.bookings)]
        self.stored[commit.account_id] = self.stored.get(commit.account_id, 0) + sum(amounts)
        self.messages += [
            inbox.Message(
                id=f"{commit.account_id} {number}",
                key=commit.account_id,
                body=json.dumps({"amount": amount}).encode(),
                sequence=number,
                sequence_number=len(self.messages) + number,
            )
            for number, amount in enumerate(amounts, start=commit.first)
        ]

    async def balances(self) -> dict[str, int]:
        return self.stored


@pytest.mark.parametrize("wrong", ["nothing", "a redelivery", "a lost event"])
async def test_the_balances_match_if_each_event_arrived(wrong: str) -> None:
    ledger = Ledger()
    load = Bookings(ledger, accounts=3, events=40, batch=5, writers=2, seed=1)
    handle = load.handler(Tally())
    await load.write(0)

    for message in ledger.messages[1:] if wrong == "a lost event" else ledger.messages:
        handle(message)
    if wrong == "a redelivery":
        handle(ledger.messages[-1])

    assert (load.progress.events, len(ledger.messages)) == (40, 40)
    assert await load.matches() is (wrong != "a lost event")
    assert all(
        load.committed_at({"partitionKey": each.key, "sequence": each.sequence}) for each in ledger.messages
    )


@pytest.mark.parametrize(("accounts", "events", "batch"), [(1, 1, 1), (3, 7, 20), (40, 1000, 20), (10, 11, 1)])
def test_the_commits_of_all_accounts_have_all_events_numbered_without_a_gap(
    accounts: int, events: int, batch: int
) -> None:
    planned = [list(commits) for commits in plan(accounts, events, batch, seed=1)]

    assert sum(commit.events for commits in planned for commit in commits) == events
    for commits in planned:
        numbers = [commit.first + place for commit in commits for place in range(commit.events)]
        assert numbers == [*range(1, len(numbers) + 1)]
        assert [commit.owner is not None for commit in commits] == [True] + [False] * (len(commits) - 1)
        assert max(commit.events for commit in commits) <= batch


# The demo's scenarios: their events add up, and every change is a new value


def changes_of(step: Step) -> list[dict[str, Any]]:
    match step:
        case Creation():
            return [{name: value for name, value in step.contact.items() if name != "id"}]
        case Changes():
            return [step.values]
        case Collision():
            return [step.one.values, step.other.values]
        case _:
            return []


@pytest.mark.parametrize(("contacts", "events"), [(1, 1), (3, 7), (40, 1000), (10, 11)])
def test_the_events_of_all_scenarios_add_up(contacts: int, events: int) -> None:
    steps = [list(scenario) for scenario in scenarios(contacts, events, seed=1)]

    assert len(steps) == contacts
    assert sum(step.events for scenario in steps for step in scenario) == events


def test_every_value_of_a_contact_is_unique() -> None:
    for scenario in scenarios(40, 1000, seed=2):
        values = [
            (aspect, str(value))
            for step in scenario
            for change in changes_of(step)
            for aspect, value in change.items()
        ]
        assert len(values) == len(set(values))


def test_a_scenario_begins_with_the_creation_and_ends_with_any_deletion() -> None:
    for scenario in scenarios(100, 1000, seed=3):
        steps = list(scenario)
        assert [isinstance(step, Creation) for step in steps] == [True] + [False] * (len(steps) - 1)
        assert not any(isinstance(step, Deletion) for step in steps[:-1])


def test_a_large_plan_has_every_kind_of_step() -> None:
    kinds = {type(step) for scenario in scenarios(50, 500, seed=1) for step in scenario}

    assert kinds == {Creation, Changes, Collision, Deletion}


def test_a_seed_determines_the_plan() -> None:
    def plan(seed: int) -> list[list[Step]]:
        return [list(scenario) for scenario in scenarios(5, 50, seed)]

    assert plan(1) == plan(1) != plan(2)


# The demo's subscriber: a redelivery is no duplicate, a second message is; and how it checks the directory


DATA = {"action": "ContactDeletedEvent", "contactId": "c", "version": 1, "createdAt": "2026-02-09T11:37:37+00:00"}


def delivered(sequence_number: int) -> inbox.Message:
    return inbox.Message(
        id="e1",
        key="c",
        action="ContactDeletedEvent",
        body=json.dumps(DATA).encode(),
        properties={"type": "domainEvent", "createdAt": DATA["createdAt"], "cosmosTimestamp": 1},
        sequence_number=sequence_number,
    )


async def summary(*sequence_numbers: int) -> dict[str, Any]:
    tally = Tally()
    tally.wrote({"id": "e1", "partitionKey": "c", "type": "domainEvent", "data": DATA}, 0.0)
    with Directory() as directory:
        subscriber = Subscriber(InSqlite(directory), tally)
        for number in sequence_numbers:
            await subscriber(delivered(number))
    assert tally.arrived == 1
    return tally.summary()


async def test_a_redelivered_message_is_counted_once() -> None:
    counted = await summary(7, 7)

    assert (counted["delivered"], counted["duplicated"], counted["altered"]) == (1, 0, 0)


async def test_a_second_message_of_the_same_event_is_a_duplicate() -> None:
    assert (await summary(7, 8))["duplicated"] == 1


JANE = {"id": "c", "name": "Jane", "description": None, "email": None, "company": None}


@pytest.mark.parametrize(
    ("written", "agrees"),
    [([JANE], True), ([{**JANE, "name": "John"}], False), ([], False), ([JANE, {**JANE, "id": "d"}], False)],
    ids=["the same", "another name", "one too many", "one missing"],
)
async def test_the_directory_must_have_exactly_the_written_contacts(
    written: list[dict[str, Any]], agrees: bool
) -> None:
    with Directory() as directory:
        directory.apply(Change("c", 1, {name: value for name, value in JANE.items() if name != "id"}))

        subscriber = Subscriber(InSqlite(directory), Tally())
        assert await subscriber.agrees_with({each["id"]: each for each in written}) is agrees


async def test_a_missing_event_is_noticed_even_if_the_contacts_are_equal() -> None:
    with Directory() as directory:
        subscriber = Subscriber(InSqlite(directory), Tally())
        directory.gaps.note("c", 1)
        assert await subscriber.agrees_with({})

        directory.gaps.note("c", 3)

        assert not await subscriber.agrees_with({})
