"""The local stack's PostgreSQL: it keeps what was committed, and is up again after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from local.database import server
from local.database.counts import SqlCounts
from local.stack.parts import Part, PartFailed
from outbox_relay.changefeed import AsyncConsumer, AsyncFeed
from outbox_relay.changefeed.statements import Statement
from outbox_relay.operator.backends.sql.install import install
from tests.support.outbox import events
from tests.support.sql_outbox import TABLE, SqlOutbox, provisioned, sql_settings
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Part]:
    """PostgreSQL with its data in this folder."""
    part = await Part.start(
        "postgresql",
        *("local", "postgresql", "--exit-with-stdin", "--port", "0", "--data", str(folder / "kept")),
        log=folder / "postgresql.log",
    )
    try:
        yield part
    finally:
        await part.stop()


async def answer(part: Part, statement: str, *, not_from: object = None) -> Any:
    """The first value of a statement's answer, once the server gives another than `not_from`."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    part.details["url"], autocommit=True
                ) as connection:
                    row = await (await connection.execute(statement)).fetchone()
            except psycopg.OperationalError:
                row = None
            if row is not None and row[0] != not_from:
                return row[0]
            await asyncio.sleep(0.05)


async def test_what_was_committed_survives_a_kill_and_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as part:
        async with await psycopg.AsyncConnection.connect(part.details["url"]) as connection:
            await connection.execute("create table kept as select 7 as number")
        started = await answer(part, "select pg_postmaster_start_time()")

        os.kill(int((Path(part.details["data"]) / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

        assert await answer(part, "select pg_postmaster_start_time()", not_from=started) > started
        assert await answer(part, "select number from kept") == 7
    async with running(tmp_path) as part:
        assert await answer(part, "select number from kept") == 7


async def test_a_port_that_another_program_has_taken_since_it_was_free_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free = server._free_port
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr(server, "_free_port", lambda: next(ports, None) or free())
        started = server.PostgresServer(tmp_path / "data", 0)
        try:
            await started.start()

            assert started.port != taken.getsockname()[1]
        finally:
            await started.stop()


async def test_it_asks_for_its_password(tmp_path: Path) -> None:
    async with running(tmp_path) as part:
        wrong = part.details["url"].replace("outbox-local", "another")

        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            await psycopg.AsyncConnection.connect(wrong)


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with running(tmp_path / "first") as part:
        port = str(part.details["port"])

        with pytest.raises(PartFailed, match=r"is in use by another PostgreSQL|Address already in use"):
            await Part.start(
                *("postgresql", "local", "postgresql", "--exit-with-stdin", "--port", port),
                log=tmp_path / "second.log",
            )


async def test_the_counts_of_an_sql_outbox_show_what_is_not_published_yet(postgres_database: str) -> None:
    session = await provisioned(postgres_database)
    await install(session)
    second = replace(sql_settings(postgres_database), consumer="relay-audit", quarantine_table="relay.item_audit")
    await session.execute(Statement("create table relay.item_audit (like relay.item including all)", ()))
    counts = SqlCounts(postgres_database, [sql_settings(postgres_database)])
    of_both = SqlCounts(postgres_database, [sql_settings(postgres_database), second])
    feed, consumer = AsyncFeed(session, TABLE), AsyncConsumer(session, TABLE, "relay")

    await SqlOutbox(session).commit(*events("a", 3))
    never_read = await counts.take()
    (claim,) = await consumer.claims([0])
    claim = await consumer.take(claim, "me")
    waiting = await counts.take()
    page = await feed.read(0)
    read = await counts.take()
    await consumer.store(claim, page.cursor)
    published = await counts.take()
    (behind,) = await (others := AsyncConsumer(session, TABLE, second.consumer)).claims([0])
    await others.take(behind, "me")
    own, still = await counts.take(), await of_both.take()
    await counts.close()
    await of_both.close()
    await session.close()

    assert (never_read.documents, never_read.quarantined, never_read.failures) == (3, 0, None)
    assert never_read.lag_s is None
    assert waiting.lag_s is not None
    assert read.lag_s is not None
    assert 0 < waiting.lag_s < read.lag_s
    assert published.lag_s == 0
    # The other stream of the same outbox has published none of it.
    assert (own.lag_s, still.documents) == (0, 3)
    assert still.lag_s is not None
    assert still.lag_s > 0
