"""The T-SQL of the migrations: it parses, keeps to what every engine has, and names each of its errors."""

from __future__ import annotations

import re
from functools import cache

import pytest
from sqlfluff.core import FluffConfig, Linter

from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.sqlserver import sessions
from outbox_relay.changefeed.sqlserver.dialect import batches

_MIGRATIONS = migrations("sqlserver")
_TEXT = "\n".join(migration.text for migration in _MIGRATIONS)
_BATCHES = [batch for migration in _MIGRATIONS for batch in batches(migration.text)]

# What a feed's procedures are written with, instead of each token, for a table with the key (id, [größe]).
_OF_A_FEED = {
    "table": "app.O''Event",
    "read_feed": "changefeed.[read_feed:app.O'Event]",
    "read_events": "changefeed.[read_events:app.O'Event]",
    "has_news": "changefeed.[has_news:app.O'Event]",
    "number": "changefeed.[number:app.O'Event]",
    "outbox": "changefeed.[outbox:app.O'Event]",
    "feed": "changefeed.[feed:app.O'Event]",
    "state": "changefeed.[state:app.O'Event]",
    "events": "[app].[O'Event]",
    "columns": ", [id], [größe]",
    "definitions": ", [id] bigint not null, [größe] nvarchar(20) collate Latin1_General_CI_AS not null",
    "of_outbox": ", o.[id], o.[größe]",
    "of_taken": ", t.[id], t.[größe]",
    "of_read": ", r.[id], r.[größe]",
    "joined": "e.[id] = r.[id] and e.[größe] = r.[größe]",
    "first": "[id]",
    "bytes": " + coalesce(datalength(e.[id]), 0)",
    "principal": ", @DbPrincipal = N'changefeed.readers:app.O''Event'",
    "retain": "changefeed.[retain:app.O'Event]",
    "keys": "2",
}


def _templates() -> list[str]:
    """The procedures that changefeed.create_procedures writes for each feed, as the last migration has them."""
    literals = [literal.replace("''", "'") for literal in re.findall(r"N'((?:[^']|'')*)'", _TEXT)]
    named = ((re.match(r"\s*(?:--.*\n)*create procedure (\{\w+\})", literal), literal) for literal in literals)
    return list({match[1]: literal for match, literal in named if match}.values())


def _generated() -> list[str]:
    return [re.sub(r"\{(\w+)\}", lambda token: _OF_A_FEED[token[1]], template) for template in _templates()]


@cache
def _linter() -> Linter:
    return Linter(
        config=FluffConfig(overrides={"dialect": "tsql", "templater": "raw", "large_file_skip_byte_limit": 0})
    )


def _violations(batch: str) -> list[str]:
    return [f"line {error.line_no}: {error.desc()}" for error in _linter().parse_string(batch + "\n").violations]


def _code(text: str) -> str:
    """The text without comments."""
    return re.sub(r"--[^\n]*", "", text)


def _first_code_line(batch: str) -> str:
    return next(line for line in batch.splitlines() if line and not line.startswith("--"))[:60]


@pytest.mark.parametrize("batch", _BATCHES, ids=_first_code_line)
def test_every_batch_parses_as_tsql(batch: str) -> None:
    assert _violations(batch) == []


@pytest.mark.parametrize("procedure", _generated(), ids=_first_code_line)
def test_every_procedure_of_a_feed_parses_as_tsql(procedure: str) -> None:
    assert _violations(procedure) == []


def test_the_procedures_of_a_feed_are_found_in_the_migrations() -> None:
    assert len(_templates()) == 5
    assert {token for template in _templates() for token in re.findall(r"\{(\w+)\}", template)} == set(_OF_A_FEED)


def test_the_parser_notices_what_is_no_tsql() -> None:
    assert _violations("create procedure a.b as begin select 1 from where; end")


# Each is missing in an engine, or means something else there, or makes correctness rest on SQL Server's locks.
_FORBIDDEN = {
    "create or alter": r"create\s+or\s+alter",
    "merge": r"\bmerge\s+(into\s+)?[\[@\w]",
    "delete through a CTE": r"\bwith\s+\w+\s+as\s*\(",
    "delete with output": r"\bdelete\b[^;]*\boutput\b",
    "top in a delete": r"\bdelete\s+top\b",
    "lock hint": r"with\s*\([^)]*\b(updlock|holdlock|tablock\w*|xlock|readpast|nolock|serializable)\b",
    "binary concatenation": r"(0x[0-9a-f]+\s*\+|\+\s*0x[0-9a-f]+|\+\s*cast\([^)]*as (var)?binary"
    r"|@(cursor|last|start)\s*\+)",
    "conversion style": r"\bconvert\s*\(",
    "maximum of a binary": r"\b(max|min)\s*\(\s*(\w\.)?ulid\s*\)",
    "string_agg (2017)": r"\bstring_agg\b",
    "trim (2017)": r"\btrim\s*\(",
    "drop if exists": r"\bif\s+exists\s+\[?\w+\]?\.",
    "crypt_gen_random": r"crypt_gen_random",
    "local time": r"\b(getdate|sysdatetime|current_timestamp)\b",
    "raiserror": r"\braiserror\b",
}


@pytest.mark.parametrize("construct", _FORBIDDEN)
def test_no_batch_has_a_construct_outside_of_the_portable_subset(construct: str) -> None:
    assert re.findall(_FORBIDDEN[construct], _code(_TEXT), re.IGNORECASE) == []


@pytest.mark.parametrize(
    ("construct", "sql"),
    [
        ("create or alter", "CREATE OR ALTER PROCEDURE a.b AS SELECT 1"),
        ("merge", "merge into a.b as t using c"),
        ("delete through a CTE", ";with taken as (select 1 as n) delete from taken"),
        ("delete with output", "delete from a.b output deleted.id where id = 1"),
        ("top in a delete", "delete top (10) from a.b"),
        ("lock hint", "select 1 from a.b with (rowlock, updlock)"),
        ("binary concatenation", "set @ulid = @last + cast(1 as binary(2))"),
        ("binary concatenation", "set @ulid = 0x00 + @tail"),
        ("conversion style", "select convert(binary(16), @text, 2)"),
        ("maximum of a binary", "select max(f.ulid) from a.b as f"),
        ("string_agg (2017)", "select string_agg(name, ',') from a.b"),
        ("trim (2017)", "select trim(name) from a.b"),
        ("drop if exists", "drop procedure if exists a.b"),
        ("crypt_gen_random", "select crypt_gen_random(10)"),
        ("local time", "select getdate()"),
        ("raiserror", "raiserror('no', 16, 1)"),
    ],
)
def test_a_forbidden_construct_is_noticed(construct: str, sql: str) -> None:
    assert re.findall(_FORBIDDEN[construct], sql, re.IGNORECASE)


def test_every_wait_for_a_lock_is_bounded_and_its_result_checked() -> None:
    taken = re.findall(r"exec (@?\w*) ?=? ?sp_getapplock(.*?);\s*(.*?)\n", _code(_TEXT), re.DOTALL)
    assert len(taken) == 6
    for result, arguments, following in taken:
        assert "@LockTimeout" in arguments
        assert "if @granted < 0" in following or "-- Another" in following, following
        assert result == "@granted"


_READERS = [
    "changefeed.sweep",
    "changefeed.sweep_loop",
    "changefeed.longpoll",
    "changefeed.[read_feed:app.O'Event]",
]


@pytest.mark.parametrize("name", _READERS)
def test_a_procedure_that_reads_sets_what_it_needs_of_the_session_in_the_right_order(name: str) -> None:
    declared = re.compile(rf"create procedure {re.escape(name)}\s")
    (procedure,) = (_code(batch) for batch in [*_BATCHES, *_generated()] if declared.search(batch))
    implicit = procedure.index("set implicit_transactions off;")
    checked = procedure.index("exec changefeed.check_")

    assert re.match(r".*?begin\s+set nocount on;\s+set implicit_transactions off;", procedure, re.DOTALL)
    assert implicit < checked < procedure.index("set transaction isolation level read committed;")
    assert checked < procedure.index("set lock_timeout 10000;")
    # Before the check, it would make the check's error roll back the caller's transaction.
    assert "set xact_abort" not in procedure[:checked]


def _last(kind: str, name: str) -> str:
    """The text of a trigger or procedure as the last migration has it, without comments."""
    declared = re.compile(rf"create {kind} {re.escape(name)}\s")
    return [_code(batch) for batch in _BATCHES if declared.search(batch)][-1]


def test_a_writer_of_any_isolation_level_keeps_no_lock_of_the_shard_that_a_sweep_updates() -> None:
    reads = re.findall(r"(?:from|join) changefeed\.shard\b[^,;)]*", _last("trigger", "changefeed.known_shard"))

    assert len(reads) == 1
    assert reads[0].endswith("with (readcommitted")


@pytest.mark.parametrize(
    "name",
    ["changefeed.sweep", "changefeed.retain_feed", "changefeed.setup_feed", "changefeed.drop_feed"],
)
def test_what_is_refused_is_refused_before_it_could_doom_the_callers_transaction(name: str) -> None:
    before, after = _last("procedure", name).split("set xact_abort on;")

    assert "exec changefeed.check_" in before or "throw" in before
    assert "exec changefeed.check_session" not in after


def test_sweeps_lock_by_shard_as_a_shard_may_move_to_another_group() -> None:
    sweep = _last("procedure", "changefeed.sweep_shard")

    assert "@resource nvarchar(255) = concat('changefeed.sweep/', @feed_id, '/', @shard)" in sweep
    assert sweep.index("sp_getapplock") < sweep.index("select last_change_sequence_number")


def test_a_feed_that_is_dropped_leaves_no_list_of_a_backfill() -> None:
    assert "drop table ', changefeed.object_name(N'backfill:', @table)" in _last(
        "procedure", "changefeed.drop_feed"
    )


def test_a_feed_that_lacks_a_procedure_can_be_dropped() -> None:
    dropped = re.findall(
        r"(.*)exec \(@text\);", _last("procedure", "changefeed.drop_feed").split("@place <= 9")[1]
    )

    assert dropped[0].strip() == "if object_id(@name) is not null"


def test_hand_filled_rows_that_are_pruned_leave_the_last_position_given() -> None:
    prune = _last("procedure", "changefeed.prune_shard")

    assert "changefeed.object_name(N'state:', @table), N' set ulid = @last" in prune
    assert prune.index("@deleted > 0") < prune.index("ulid < @last;") < prune.index("commit transaction")


def test_a_page_is_compared_with_the_low_water_mark_after_each_time_it_is_read() -> None:
    (procedure,) = [_code(text) for text in _generated() if "create procedure changefeed.[read_feed:" in text]
    pages = procedure.split("insert into #read")[1:]

    assert len(pages) == 2
    assert all("exec changefeed.check_low_water" in page.split("end try")[0] for page in pages)


def test_every_error_is_documented_and_raised_with_its_number_in_its_message() -> None:
    documented = set(re.findall(r"--   (771\d\d)  ", _TEXT))
    code = _code(_TEXT)
    raised = list(re.finditer(r"throw (771\d\d), (@message|'+changefeed (\d+))", code))
    assert {match[1] for match in raised} == documented
    for match in raised:
        number = match[3] or re.findall(r"changefeed (\d+): ", code[: match.start()])[-1]
        assert number == match[1]


def test_every_error_becomes_an_exception_of_changefeed() -> None:
    documented = set(re.findall(r"--   (771\d\d)  ", _TEXT))
    assert set(sessions.EXCEPTIONS) == documented


def test_a_line_with_go_separates_batches_and_a_word_does_not() -> None:
    assert batches("select 1\nGO\n\nselect 'go'\n  go  away\ngo \n") == ["select 1", "select 'go'\n  go  away"]
