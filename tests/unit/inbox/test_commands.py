"""The commands of operators on parked keys."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import inbox
from inbox.commands import main
from inbox.parked import Cause, ParkedMessage

CAUSE = Cause("unknown-title", "DeadLetter", "Nobody knows 'Frankenstein'.")


def parked(number: int, key: str, topic: str = "events") -> ParkedMessage:
    message = inbox.Message(
        f"{key}-{number}", key, b'{"title": "Frankenstein"}', sequence_number=number, topic=topic
    )
    return ParkedMessage.of(message)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> inbox.SqliteStore:
    path = tmp_path / "loans.sqlite"
    monkeypatch.setenv("INBOX_STORE", str(path))
    store = inbox.SqliteStore(inbox.SqliteConnection(path))

    async def fill() -> None:
        for number in (1, 2, 3):
            await store.park(parked(number, "a"), CAUSE)
        await store.park(parked(1, "b"), Cause("handler-failed", "OSError", "Mary's disk"))
        await store.park(ParkedMessage("events", "c", "", 1, None), Cause("unreadable", "DeadLetter"))
        await store.park(parked(1, "b", "orders"), CAUSE)

    asyncio.run(fill())
    return store


def numbers(store: inbox.SqliteStore, key: str) -> list[int]:
    return [each.number for each in asyncio.run(store.messages("events", key))]


def test_lists_show_ids_and_reasons_and_no_text(
    store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys"]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == ["KEY", "TOPIC", "SINCE", "MESSAGES", "STATE", "REASON", "ERROR"]
    assert [row.split()[:2] + row.split()[3:] for row in rows] == [
        ["a", "events", "3", "parked", "unknown-title", "DeadLetter"],
        ["b", "events", "1", "parked", "handler-failed", "OSError"],
        ["c", "events", "1", "parked", "unreadable", "DeadLetter"],
        ["b", "orders", "1", "parked", "unknown-title", "DeadLetter"],
    ]
    assert main(["show", "a"]) == 0
    assert main(["show", "c"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines()[2:5]] == [["1", "a-1"], ["2", "a-2"], ["3", "a-3"]]
    assert "only its place" in shown
    for command in (["keys", "--json"], ["show", "a", "--json"]):
        assert main(command) == 0
        shown += capsys.readouterr().out
    assert "Frankenstein" not in shown


def test_data_are_shown_where_they_are_asked_for(
    store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "a", "--data"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["detail"] == CAUSE.detail
    assert [each["text"] for each in shown["parked"]] == ['{"title": "Frankenstein"}'] * 3


def test_a_key_is_released_unless_its_first_message_is_only_a_place(
    store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["release", "a"]) == 0
    assert "released 'a' of events" in capsys.readouterr().out
    assert main(["release", "--all"]) == 1
    assert "'c'" in capsys.readouterr().err
    assert [(each.key, each.is_released) for each in asyncio.run(store.keys())] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("b", True),
    ]


def test_the_first_message_is_discarded_or_all(
    store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["discard", "a"]) == 1  # nobody confirms
    assert numbers(store, "a") == [1, 2, 3]
    assert main(["discard", "a", "--yes"]) == 0
    assert numbers(store, "a") == [2, 3]
    assert main(["discard", "a", "--all", "--yes"]) == 0
    assert numbers(store, "a") == []
    assert capsys.readouterr().out.splitlines() == [
        "discarded 1; the key 'a' of events is still parked",
        "discarded 2; the key 'a' of events is no longer parked",
    ]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["release", "x"], "The key 'x' is not parked by the consumer 'default'"),
        (["release", "a", "--consumer", "other"], "not parked by the consumer 'other'"),
        (["release"], "Name a key, or give --all"),
        (["release", "b"], "Give --topic: the key is parked in events, orders"),
    ],
)
def test_what_cannot_be_done_says_why(
    command: list[str], complaint: str, store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    assert complaint in capsys.readouterr().err


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nothing.sqlite"

    assert main(["keys", "--store", str(path)]) == 2
    assert "There is no file" in capsys.readouterr().err
    assert not path.exists()
