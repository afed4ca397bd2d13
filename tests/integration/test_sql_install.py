"""The commands `install` and `run` in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.changefeed import AsyncFeed, DatabaseError, connect_async
from outbox_relay.changefeed.statements import Result, Statement
from outbox_relay.operator.cli import run
from outbox_relay.operator.cli.main import PROGRAM
from relay.backends.sql.database import connect
from relay.config.settings import SqlFeed
from tests.support.operators import Run, relay_command

SERVICEBUS = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true"
COSMOS = "AccountEndpoint=https://a/;AccountKey=YQ=="


async def install(*words: str, **environment: str) -> Run:
    options = ("--no-roles", "--keep", "30d", *words)
    return await relay_command({"SERVICEBUS": SERVICEBUS, **environment}, "install", *options)


async def test_an_install_that_ends_before_any_statement_is_completed_by_the_next_one(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"SQL": postgres_database, "SQL_FEED": "shop.Event"}
    left = 0

    class Ending:
        """A session that ends before one of its statements."""

        def __init__(self, session: Any) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        async def execute(self, statement: Statement, /) -> Result:
            nonlocal left
            if left == 0:
                raise DatabaseError("the process is killed", lost=True)
            left -= 1
            result: Result = await self._session.execute(statement)
            return result

    async def connect_ending(feed: SqlFeed) -> Ending:
        return Ending(await connect(feed))

    monkeypatch.setattr("outbox_relay.operator.backends.sql.install.connect", connect_ending)
    codes: list[int] = []
    while 0 not in codes and len(codes) < 100:
        left = len(codes)
        codes.append((await install("--create-table", **found)).code)

    assert codes == [3] * (len(codes) - 1) + [0]
    assert len(codes) > 10
    monkeypatch.undo()
    assert (await install("--create-table", **found)).out == "Everything is there already.\n"
    session = await connect_async(postgres_database)
    try:
        for text in (
            """insert into shop."Event" (id, partition_key, data) values ('e', 'k', '{}')""",
            """insert into changefeed."outbox:shop.Event" (shard_id, id) values (0, 'e')""",
        ):
            await session.execute(Statement(text))
        (entry,) = (await AsyncFeed(session, "shop.Event").read(0)).entries
        assert entry.row is not None
        assert entry.row["id"] == "e"
    finally:
        await session.close()


async def test_install_makes_each_thing_once(postgres_database: str) -> None:
    found = {"SQL": postgres_database, "SQL_FEED": "shop.Event"}

    first = await install("--create-table", "--json", **found)
    again = await install("--create-table", "--json", **found)

    assert first.code == again.code == 0
    assert first.json["done"][-2:] == ["made the table shop.Event", "set up the feed of shop.Event"]
    assert again.json["done"] == []
    assert (await install(**found)).out == "Everything is there already.\n"
    session = await connect_async(postgres_database)
    result = await session.execute(Statement("select count(*) from relay.item"))
    assert result.rows[0][0] == 0
    # Unless asked for, commits wake nobody.
    result = await session.execute(Statement("select channel from changefeed.outbox_feed"))
    assert result.rows[0][0] is None
    await session.close()


def test_how_long_positions_are_kept_has_to_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse(["install", "--create-table"])

    assert "--keep requires an argument" in capsys.readouterr().err


async def test_a_table_of_ones_own_gets_a_feed_in_a_schema_that_exists(postgres_database: str) -> None:
    session = await connect_async(postgres_database)
    await session.execute(Statement("create schema shop"))

    made = await install("--create-table", SQL=postgres_database, SQL_FEED="shop.Event")

    assert "made the table shop.Event" in made.out
    # All first events without one would go to quarantine.
    assert "a string in the column action" in made.out
    await session.close()


async def test_what_stands_in_the_way_is_named(postgres_database: str) -> None:
    without_table = await install(SQL=postgres_database)
    without_sql = await install("--create-table", COSMOS=COSMOS)
    without_server = await install("--create-table", SQL="postgresql://127.0.0.1:1/shop")

    assert [each.code for each in (without_table, without_sql, without_server)] == [2, 2, 3]
    assert "there is no table outbox.domain_event" in without_table.err
    assert "SQL is not set" in without_sql.err
    assert "cannot be reached" in without_server.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "layout = 'debezium'\nfields.id = '/event_id'",
            "its id at /event_id, its key at /aggregateid, its data at /payload, and its action at /type, a "
            "string. One without goes to quarantine (not-mapped).",
        ),
        (
            "fields.data = '/payload/data'",
            "its id at /id, its key at /partition_key, its data at /payload/data, and its action at /action or "
            "/payload/data/action, a string. One without goes to quarantine (not-mapped).",
        ),
        (
            "properties.p = '/data/p'",
            "an action: a string in the column action, or as the member action of data. One without goes to "
            "quarantine (not-mapped).",
        ),
        (
            "",
            "an action: a string in the column action, or as the member action of data. One without goes to "
            "quarantine (action-not-string).",
        ),
    ],
)
async def test_the_parts_that_an_event_has_to_have_are_those_of_relay_toml(
    postgres_database: str, tmp_path: Path, text: str, says: str
) -> None:
    routes = "[destinations.audit]\nqueue = 'audit'\n[[routes]]\nto = ['default', 'audit']"
    (file := tmp_path / "relay.toml").write_text(f"{text}\n[outboxes.default]\nfeed = 'shop.Event'\n{routes}")
    settings = {"SQL": postgres_database, "RELAY_FILE": str(file)}

    made = await install("--create-table", **settings)

    advice = [line for line in made.out.splitlines() if line.startswith("Write each event")]
    assert advice == [f"Write each event of shop.Event with {says}"]


async def test_a_worker_that_is_told_to_stop_ends_with_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = asyncio.Event()
    stopped.set()
    monkeypatch.setattr(run, "stop_signal", lambda: stopped)
    environment = {"SERVICEBUS": SERVICEBUS, "SQL": "postgresql://127.0.0.1:1/shop"}

    ended = await relay_command(environment, "run", "--json")

    assert ended.code == 0
    assert f"relay worker {ended.json['worker']} has started" in capsys.readouterr().out


async def test_there_is_nothing_to_run_without_an_sql_outbox() -> None:
    ended = await relay_command({"SERVICEBUS": SERVICEBUS, "COSMOS": COSMOS}, "run")

    assert (ended.code, "SQL is not set" in ended.err) == (2, True)
