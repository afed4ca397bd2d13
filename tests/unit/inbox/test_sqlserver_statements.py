"""The statements of the store in SQL Server, which run only where there is one: they are T-SQL, and complete."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlfluff.core import FluffConfig, Linter

from outbox_relay.inbox.errors import DeadLetter
from outbox_relay.inbox.parking import Claim, ParkedMessage
from outbox_relay.inbox.stores.port import Identity
from outbox_relay.inbox.stores.sql.dialects import Operation, Result, SqlServer, Statement, run
from outbox_relay.inbox.stores.sql.parking import Parked
from outbox_relay.inbox.stores.sql.recording import Recording, install

RECORDING = Recording(SqlServer("app"), "loans")
PARKED = Parked(RECORDING)
PLACE = ParkedMessage("events", "k ", "a", 7, None, enqueued_at=datetime(2026, 11, 26, tzinfo=UTC), position=3)
EVENT = Identity("events", "k ", "a")


def answers(sql: str) -> Result:
    """Return a server's answers about an entity that is at number 9 and misses 2 to 5."""
    if "declare @new" in sql:
        return Result([[0 if "inbox_progress" in sql else 1]], 0)
    if "select progress" in sql:
        return Result([[1, 9]], 1)
    if "inbox_parked_keys" in sql:
        return Result([[0]], 1)
    if ", message, attempts" in sql:
        return Result([[1, b"all", 7, b"a", None, None, 0]], 1)
    if "current_transaction_id" in sql:
        return Result([[7]], 1)
    if "select count" in sql:
        return Result([[0]], 1)
    if "select first" in sql:
        return Result([[2, 5]], 1)
    if "inbox_handled" in sql and sql.startswith("delete"):
        return Result((), 1)
    return Result((), 0)


def statements_of(operation: Operation[Any]) -> Iterator[Statement]:
    seen: list[Statement] = []

    def execute(statement: Statement) -> Result:
        seen.append(statement)
        return answers(statement.sql)

    run(execute, operation)
    yield from seen


@pytest.mark.parametrize(
    ("operation", "tables"),
    [
        (
            lambda: RECORDING.record(EVENT, "e", 4),
            ["handled", "progress", "progress", "gaps", "gaps", "gaps", "gaps"],
        ),
        (lambda: RECORDING.record(EVENT, "e", 12), ["handled", "progress", "progress", "progress", "gaps"]),
        (RECORDING.dialect.mark, None),
        (lambda: RECORDING.is_unbroken(EVENT, 7), None),
        (RECORDING.gaps, ["progress"]),
        (lambda: RECORDING.forget(timedelta(days=30)), ["handled"]),
        (
            lambda: PARKED.set_aside(PLACE),
            ["parked_keys", "handled", *["parked_messages"] * 5],
        ),
        (lambda: PARKED.messages("events", "k ", PLACE, 10), ["parked_messages"]),
        (lambda: PARKED.next(Claim("events", "k ", "t"), PLACE), ["parked_keys", *["parked_messages"] * 3]),
        (lambda: install(SqlServer("app")), None),
    ],
    ids=["late", "ahead", "mark", "unbroken", "gaps", "forget", "set aside", "messages", "next", "install"],
)
def test_each_statement_is_tsql_with_its_parameters_and_the_schema(
    operation: Callable[[], Operation[Any]], tables: list[str] | None
) -> None:
    linter = Linter(config=FluffConfig(overrides={"dialect": "tsql"}))
    seen = list(statements_of(operation()))

    for statement in seen:
        parsed = linter.parse_string(statement.sql.replace("?", "@p"))
        assert parsed.violations == [], statement.sql
        assert statement.sql.count("?") == len(statement.parameters)
        bare = re.sub(r"\[app\]\.inbox_|inbox_handled_at|inbox_parked_messages_number", "", statement.sql)
        assert "inbox_" not in bare
    if tables is not None:
        assert [each.sql.partition("[app].inbox_")[2].split()[0] for each in seen] == tables


def test_texts_are_compared_as_utf8() -> None:
    (note, *_) = statements_of(RECORDING.record(EVENT, "e", None))

    assert note.parameters[:4] == [b"loans", b"events", b"k ", b"a"]


@pytest.mark.parametrize("key", ["a\0b", "x" * 513])
def test_a_key_that_no_column_holds_is_dead_lettered(key: str) -> None:
    with pytest.raises(DeadLetter, match="invalid-identity: The key"):
        list(statements_of(RECORDING.record(Identity("events", key, "a"), "e", 1)))
