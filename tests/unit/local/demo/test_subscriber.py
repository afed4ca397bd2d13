"""The demo's subscriber: a redelivery is no duplicate, a second message is; and how it checks the directory."""

from __future__ import annotations

import json
from typing import Any

import pytest

import inbox
from local.demo.subscriber import Subscriber
from local.demo.tally import Tally
from samples.contacts.consumer.changes import Change
from samples.contacts.consumer.directory import Directory

DATA = {"action": "ContactDeletedEvent", "contactId": "c", "version": 1, "createdAt": "2026-02-09T11:37:37+00:00"}


def message(sequence_number: int) -> inbox.Message:
    return inbox.Message(
        id="e1",
        key="c",
        action="ContactDeletedEvent",
        body=json.dumps(DATA).encode(),
        properties={"type": "domainEvent", "createdAt": DATA["createdAt"], "cosmosTimestamp": 1},
        sequence_number=sequence_number,
    )


def summary(*sequence_numbers: int) -> dict[str, Any]:
    tally = Tally()
    tally.wrote({"id": "e1", "partitionKey": "c", "type": "domainEvent", "data": DATA}, 0.0)
    with Directory() as directory:
        subscriber = Subscriber(directory, tally)
        for number in sequence_numbers:
            subscriber(message(number))
    assert tally.arrived == 1
    return tally.summary()


def test_a_redelivered_message_is_counted_once() -> None:
    counted = summary(7, 7)

    assert (counted["delivered"], counted["duplicated"], counted["altered"]) == (1, 0, 0)


def test_a_second_message_of_the_same_event_is_a_duplicate() -> None:
    assert summary(7, 8)["duplicated"] == 1


JANE = {"id": "c", "name": "Jane", "description": None, "email": None, "company": None}


@pytest.mark.parametrize(
    ("written", "agrees"),
    [([JANE], True), ([{**JANE, "name": "John"}], False), ([], False), ([JANE, {**JANE, "id": "d"}], False)],
    ids=["the same", "another name", "one too many", "one missing"],
)
def test_the_directory_must_have_exactly_the_written_contacts(written: list[dict[str, Any]], agrees: bool) -> None:
    with Directory() as directory:
        directory.apply(Change("c", 1, {name: value for name, value in JANE.items() if name != "id"}))

        assert Subscriber(directory, Tally()).agrees_with({each["id"]: each for each in written}) is agrees


def test_a_missing_event_is_noticed_even_if_the_contacts_are_equal() -> None:
    with Directory() as directory:
        subscriber = Subscriber(directory, Tally())
        directory.gaps.note("c", 1)
        assert subscriber.agrees_with({})

        directory.gaps.note("c", 3)

        assert not subscriber.agrees_with({})
