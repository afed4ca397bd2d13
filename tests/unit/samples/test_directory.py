"""The consumer's handler and directory are idempotent for repeated and reordered events."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from samples.contacts.consumer.changes import Change, UnreadableEvent, sequence_of
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.handler import handle

NAME = {"firstName": "John", "lastName": "Doe"}
COMPANY = {"companyName": "Contoso"}


def event(action: str, version: int, contact: str = "c1", **content: Any) -> bytes:
    return json.dumps({"action": action, "contactId": contact, "version": version, **content}).encode()


def created(contact: str = "c1") -> bytes:
    return event(
        "ContactCreatedEvent", 1, contact, name=NAME, description="", email="first@contoso.com", company=COMPANY
    )


def email(version: int, address: str) -> bytes:
    return event("ContactEmailUpdatedEvent", version, email=address)


def described(version: int, text: str) -> bytes:
    return event("ContactDescriptionUpdatedEvent", version, description=text)


DELETED = event("ContactDeletedEvent", 9)

EVENTS = (created(), email(2, "a@b"), described(2, "x"), described(3, "y"), email(4, "c@d"))
RESULT = {"id": "c1", "name": NAME, "description": "y", "email": "c@d", "company": COMPANY}


@pytest.fixture
def directory() -> Iterator[Directory]:
    with Directory() as directory:
        yield directory


def test_the_directory_is_built_from_events(directory: Directory) -> None:
    applied = [handle(message, directory) for message in (*EVENTS, created("c2"))]

    assert all(applied)
    assert directory.contact("c1") == RESULT
    assert [contact["id"] for contact in directory.contacts()] == ["c1", "c2"]


def test_each_kind_of_event_changes_its_own_aspect(directory: Directory) -> None:
    handle(created(), directory)
    handle(event("ContactNameUpdatedEvent", 2, name={"firstName": "Jane", "lastName": "Roe"}), directory)
    handle(event("ContactCompanyUpdatedEvent", 3, company={"companyName": "Fabrikam"}), directory)

    contact = directory.contact("c1")
    assert contact is not None
    assert (contact["name"]["firstName"], contact["company"]) == ("Jane", {"companyName": "Fabrikam"})
    assert contact["email"] == "first@contoso.com"


def test_a_repeated_event_changes_nothing(directory: Directory) -> None:
    for message in EVENTS:
        handle(message, directory)

    assert [handle(message, directory) for message in EVENTS] == [False] * len(EVENTS)
    assert directory.contact("c1") == RESULT


@pytest.mark.parametrize("order", list(itertools.permutations(range(len(EVENTS)))))
def test_events_in_any_order_give_the_same_contact(directory: Directory, order: tuple[int, ...]) -> None:
    for number in order:
        handle(EVENTS[number], directory)

    assert directory.contact("c1") == RESULT


@pytest.mark.parametrize("place", range(len(EVENTS) + 1))
def test_a_deleted_contact_stays_deleted_whatever_arrives_late(directory: Directory, place: int) -> None:
    for message in (*EVENTS[:place], DELETED, *EVENTS[place:], DELETED):
        handle(message, directory)

    assert directory.contact("c1") is None
    assert list(directory.contacts()) == []


def test_an_incomplete_contact_is_not_listed(directory: Directory) -> None:
    handle(email(5, "a@b"), directory)

    assert directory.contact("c1") is None
    handle(created(), directory)
    contact = directory.contact("c1")
    assert contact is not None
    assert contact["email"] == "a@b"


def test_other_events_are_ignored(directory: Directory) -> None:
    assert handle(json.dumps({"action": "OrderPlaced", "orderId": "o1"}).encode(), directory) is False
    assert list(directory.contacts()) == []


def test_skipped_numbers_are_missing_until_they_arrive(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    for sequence in (1, 2, 5, 6):
        handle(described(sequence, "x"), directory, sequence)
    assert list(directory.gaps) == [("c1", 3), ("c1", 4)]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "contact c1: event 3 is missing, event 5 has arrived",
        "contact c1: event 4 is missing, event 5 has arrived",
    ]

    # Released from quarantine and delivered twice; another event repeated.
    for sequence in (4, 4, 6):
        handle(described(sequence, "x"), directory, sequence)
    assert list(directory.gaps) == [("c1", 3)]


def test_contacts_are_numbered_separately_and_from_the_first_event_received(
    directory: Directory,
) -> None:
    handle(email(7, "a@b"), directory, 12)
    handle(created("c2"), directory, 1)
    handle(email(8, "a@b"), directory, 14)

    assert list(directory.gaps) == [("c1", 13)]


def test_an_event_that_the_directory_ignores_is_not_missing(directory: Directory) -> None:
    handle(created(), directory, 1)
    handle(event("ContactCalledEvent", 2), directory, 2)
    handle(email(3, "a@b"), directory, 3)

    assert list(directory.gaps) == []


def test_events_without_a_sequence_are_not_missing(directory: Directory) -> None:
    for message in EVENTS:
        handle(message, directory)

    assert list(directory.gaps) == []


@pytest.mark.parametrize(
    ("properties", "sequence"),
    [({b"sequence": 3}, 3), ({"sequence": 3}, 3), ({b"type": b"x"}, None), ({}, None), (None, None)],
)
def test_the_sequence_is_an_application_property(properties: dict[Any, Any] | None, sequence: int | None) -> None:
    assert sequence_of(properties) == sequence


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "no action"),
        (b'{"action": 7}', "no action"),
        (b'{"action": "ContactNameUpdatedEvent", "contactId": "c1", "version": 2}', "has no name"),
        (b'{"action": "ContactDeletedEvent", "contactId": "c1"}', "has no version"),
        (
            b'{"action": "ContactDeletedEvent", "contactId": "c1", "version": "2"}',
            "an invalid contactId or version",
        ),
        (b'{"action": "ContactDeletedEvent", "contactId": 1, "version": 2}', "an invalid contactId or version"),
    ],
)
def test_an_unreadable_event_is_rejected_and_changes_nothing(
    directory: Directory, body: bytes, complaint: str
) -> None:
    with pytest.raises(UnreadableEvent, match=complaint):
        handle(body, directory)

    assert list(directory.contacts()) == []


def test_a_change_that_cannot_be_stored_is_rolled_back(directory: Directory) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        directory.apply(Change("c1", 9, {"email": "a@b", cast(str, None): "x"}))
    with pytest.raises(sqlite3.IntegrityError):
        directory.gaps.note(cast(str, None), 1)

    handle(created(), directory, 1)
    contact = directory.contact("c1")
    assert contact is not None
    assert contact["email"] == "first@contoso.com"


def test_the_directory_survives_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "directory.sqlite"
    with Directory(path) as directory:
        for sequence, message in enumerate(EVENTS[:-1], start=1):
            handle(message, directory, sequence)
        handle(EVENTS[-1], directory)

    with Directory(path) as again:
        assert again.contact("c1") == RESULT
        assert handle(EVENTS[-1], again) is False
        handle(described(6, "z"), again, 6)

    with Directory(path) as again:
        assert list(again.gaps) == [("c1", 5)]
