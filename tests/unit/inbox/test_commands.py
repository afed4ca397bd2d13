"""The commands of operators on parked keys."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from outbox_relay import inbox
from outbox_relay.inbox.commands import main
from outbox_relay.inbox.parking import Cause, ParkedMessage
from tests.support.closing import CloseLater
from tests.support.watchdog import WATCHDOG_S

CAUSE = Cause("unknown-title", "DeadLetter", "Nobody knows 'Frankenstein'.")


def parked(number: int, key: str, topic: str = "events") -> ParkedMessage:
    message = inbox.Message(
        f"{key}-{number}", key, b'{"title": "Frankenstein"}', sequence_number=number, topic=topic
    )
    return ParkedMessage.of(message)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close_later: CloseLater) -> inbox.SqliteStore:
    path = tmp_path / "loans.sqlite"
    monkeypatch.setenv("INBOX_STORE", str(path))
    store = inbox.SqliteStore(close_later(inbox.SqliteConnection(path)))

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
    assert main(["discard", "a", "--whole-key", "--yes"]) == 0
    assert numbers(store, "a") == []
    assert capsys.readouterr().out.splitlines() == [
        "discarded 1; the key 'a' of events is still parked",
        "discarded 2; the key 'a' of events is no longer parked",
    ]


def answer(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, object]:
    """Run a command with --json; return the exit code, and its whole standard output as one JSON value."""
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_results_and_refusals_are_json_if_asked_for(
    store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    released = {"released": [{"key": "a", "topic": "events"}], "refused": []}
    assert answer("release", "a", capsys=capsys) == (0, released)
    code, all_keys = answer("release", "--all", capsys=capsys)
    assert isinstance(all_keys, dict)
    assert (code, [each["key"] for each in all_keys["released"]]) == (1, ["a", "b", "b"])
    assert all_keys["error"] == all_keys["refused"][0]
    discarded = {"key": "a", "topic": "events", "discarded": 1, "parked": True}
    assert answer("discard", "a", "--yes", capsys=capsys) == (0, discarded)
    assert answer("discard", "a", capsys=capsys) == (
        1,
        {"error": "Nothing was discarded: confirm it, or give --yes."},
    )
    monkeypatch.delenv("INBOX_STORE")
    code, refused = answer("keys", capsys=capsys)
    assert isinstance(refused, dict)
    assert (code, refused["error"].partition(":")[0]) == (2, "Give --store or set INBOX_STORE")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["release", "x"], "The key 'x' is not parked by the consumer 'default'"),
        (["release", "a", "--consumer", "other"], "no record of the consumer 'other'"),
        (["keys", "--consumer", "other"], "no record of the consumer 'other'"),
        (["release", "--all", "--consumer", "other"], "no record of the consumer 'other'"),
        (["release", "b"], "Give --topic: the key is parked in events, orders"),
    ],
)
def test_what_cannot_be_done_says_why(
    command: list[str], complaint: str, store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("command", [["release"], ["release", "a", "--all"], ["keys", "--consumer", ""]])
def test_a_call_that_is_wrong_does_nothing(
    command: list[str], store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not any(each.is_released for each in asyncio.run(store.keys()))


def test_all_is_every_key_everywhere(store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["discard", "a", "--all", "--yes"])

    assert refused.value.code == 2
    assert "--all" in capsys.readouterr().err
    assert numbers(store, "a") == [1, 2, 3]


@pytest.mark.parametrize("options", [[], ["--whole-key"]])
def test_only_the_confirmed_message_is_discarded(
    options: list[str],
    store: inbox.SqliteStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """While the operator reads the question, a receiver hands the message over."""

    async def hand_over() -> None:
        with contextlib.closing(inbox.SqliteConnection(tmp_path / "loans.sqlite")) as connection:
            receiver = inbox.SqliteStore(connection)
            await receiver.release("events", "a")
            claim = await receiver.claim("events", timedelta(minutes=1))
            assert claim is not None
            await receiver.give_back(claim, await receiver.next(claim))
            await receiver.set_aside(parked(4, "a"))

    def answer() -> str:
        thread = threading.Thread(target=asyncio.run, args=(hand_over(),))
        thread.start()
        thread.join()
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(["discard", "a", *options]) == 1

    assert numbers(store, "a") == ([4] if options else [2, 3, 4])
    what = "all 3 message(s)" if options else "message 'a-1', number 1,"
    asked = f"Discard {what} of the key 'a' of events for good? Type yes to continue: "
    assert re.fullmatch(rf"{re.escape(asked)}.*1 of .*\n", capsys.readouterr().err)
    with contextlib.closing(sqlite3.connect(tmp_path / "loans.sqlite")) as database:
        handled = database.execute("SELECT id FROM inbox_handled ORDER BY id").fetchall()
    assert [row[0] for row in handled] == (["a-2", "a-3"] if options else [])


HOSTILE = "k\x1b]0;owned\x07\x9b31m\u202e\n\x00"


def test_no_text_of_others_controls_the_terminal(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    close_later: CloseLater,
) -> None:
    path = tmp_path / "store.sqlite"
    store = inbox.SqliteStore(close_later(inbox.SqliteConnection(path)))
    monkeypatch.setenv("INBOX_STORE", str(path))
    message = inbox.Message(HOSTILE, HOSTILE, b"{}", sequence_number=1, topic=HOSTILE)

    async def park() -> None:
        await store.park(ParkedMessage.of(message), Cause(HOSTILE, HOSTILE))
        await store.park(ParkedMessage(HOSTILE, "place", HOSTILE, 1, None), Cause(HOSTILE, HOSTILE))
        await store.park(ParkedMessage.of(replace(message, topic="other")), Cause(HOSTILE, HOSTILE))

    asyncio.run(park())
    one = [HOSTILE, "--topic", HOSTILE]
    for command in (
        ["keys"],
        ["keys", "--json"],
        ["show", *one],
        ["show", *one, "--json"],
        ["show", *one, "--data"],
        ["release", HOSTILE],
        ["release", "place"],
        ["release", *one],
        ["release", HOSTILE + "x"],
        ["discard", *one],
        ["discard", *one, "--yes"],
        ["keys", "--consumer", HOSTILE.strip("\x00")],
    ):
        main(command)
    captured = capsys.readouterr()
    assert "owned" in captured.out
    assert "owned" in captured.err
    for text in captured:
        assert [each for each in text.replace("\n", "") if not each.isprintable()] == []
    assert not any(line.startswith("\x00") for line in captured.out.split("\n"))


def test_a_terminal_without_a_character_gets_it_escaped(store: inbox.SqliteStore, tmp_path: Path) -> None:
    asyncio.run(store.park(parked(1, "\u9375"), CAUSE))

    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"}
    for command in (["keys"], ["show", "\u9375"], ["keys", "--help"], ["release", "x"]):
        ran = subprocess.run(
            [sys.executable, "-m", "outbox_relay.inbox", *command],
            env=environment,
            capture_output=True,
            timeout=WATCHDOG_S,
        )
        assert b"Traceback" not in ran.stderr
        assert ran.returncode == (1 if command == ["release", "x"] else 0)
        assert b"\\u" in ran.stdout or command == ["release", "x"]


def test_an_empty_file_is_no_store_and_stays_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.sqlite"
    for content, complaint in ((b"", "no tables of inbox"), (b"no database" * 100, "DatabaseError")):
        path.write_bytes(content)
        assert main(["keys", "--store", str(path)]) == 2
        assert complaint in capsys.readouterr().err
        assert path.read_bytes() == content


def test_a_store_of_an_earlier_version_is_not_migrated(
    store: inbox.SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "loans.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE inbox_schema SET version = 3")
        before = database.execute("SELECT * FROM sqlite_master").fetchall()
        for command in (["keys"], ["show", "a"], ["release", "--all"], ["discard", "a", "--yes"]):
            assert main(command) == 2
            error = capsys.readouterr().err
            assert "The store cannot be used." in error
            assert "version 3, of a development version before 0.1.0" in error
        assert database.execute("SELECT * FROM sqlite_master").fetchall() == before


def test_a_schema_is_of_the_stores_that_have_one(
    store: inbox.SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "--schema", "app"]) == 2
    assert "have a schema" in capsys.readouterr().err


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nothing.sqlite"

    assert main(["keys", "--store", str(path)]) == 2
    assert "There is no file" in capsys.readouterr().err
    assert not path.exists()
