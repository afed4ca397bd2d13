"""The commands `install` and `run` in this process."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Iterator

import pytest

from changefeed import connect_async
from changefeed.statements import Statement
from relay.cli import install
from relay.cli import run as run_worker
from relay.cli.results import ExitCode
from relay.errors import ServiceError, UsageError
from relay.settings import Settings

SERVICEBUS = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true"
COSMOS = "AccountEndpoint=https://a/;AccountKey=YQ=="


def settings(**environment: str) -> Settings:
    return Settings.from_environment({"SERVICEBUS": SERVICEBUS, **environment})


def options(*, create_table: bool = True) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    install.add_arguments(parser)
    return parser.parse_args(["--no-roles", "--keep", "30d", *(["--create-table"] if create_table else [])])


async def test_install_makes_each_thing_once(postgres_database: str) -> None:
    found = settings(SQL=postgres_database, SQL_FEED="shop.Event")

    first = await install.run(options(), found)
    again = await install.run(options(), found)

    assert first.code is again.code is ExitCode.OK
    assert first.data["done"][-2:] == ["made the table shop.Event", "set up the feed of shop.Event"]
    assert (again.data["done"], again.lines) == ([], ["Everything is there already."])
    session = await connect_async(postgres_database)
    result = await session.execute(Statement("select count(*) from relay.item"))
    assert result.rows[0][0] == 0
    # Unless asked for, commits wake nobody.
    result = await session.execute(Statement("select channel from changefeed.outbox_feed"))
    assert result.rows[0][0] is None
    await session.close()


def test_how_long_positions_are_kept_has_to_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    install.add_arguments(parser)

    with pytest.raises(SystemExit):
        parser.parse_args(["--create-table"])

    assert "required: --keep" in capsys.readouterr().err


async def test_a_table_of_ones_own_gets_a_feed_in_a_schema_that_exists(postgres_database: str) -> None:
    session = await connect_async(postgres_database)
    await session.execute(Statement("create schema shop"))
    result = await install.run(options(), settings(SQL=postgres_database, SQL_FEED="shop.Event"))
    assert "made the table shop.Event" in result.data["done"]
    await session.close()


async def test_what_stands_in_the_way_is_named(postgres_database: str) -> None:
    with pytest.raises(UsageError, match=r"there is no table outbox\.domain_event"):
        await install.run(options(create_table=False), settings(SQL=postgres_database))
    with pytest.raises(UsageError, match="SQL is not set"):
        await install.run(options(), settings(COSMOS=COSMOS))
    with pytest.raises(ServiceError, match="cannot be reached"):
        await install.run(options(), settings(SQL="postgresql://127.0.0.1:1/shop"))


@pytest.fixture
def log_level() -> Iterator[None]:
    """Puts the root logger's level back."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.mark.usefixtures("log_level")
async def test_a_worker_that_is_told_to_stop_ends_with_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = asyncio.Event()
    stopped.set()
    monkeypatch.setattr(run_worker, "on_signals", lambda: stopped)

    result = await run_worker.run(settings(SQL="postgresql://127.0.0.1:1/shop"), {})

    assert result.code is ExitCode.OK
    assert f"relay worker {result.data['worker']} has started" in capsys.readouterr().out


async def test_there_is_nothing_to_run_without_an_sql_outbox() -> None:
    with pytest.raises(UsageError, match="SQL is not set"):
        await run_worker.run(settings(COSMOS=COSMOS), {})
