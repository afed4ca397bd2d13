"""SQLite's statements stay prepared from block to block; none of them ends a block's transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from outbox_relay import inbox
from tests.support.closing import CloseLater


async def test_what_was_prepared_outside_of_a_block_ends_no_transaction_inside(
    tmp_path: Path, close_later: CloseLater
) -> None:
    database = close_later(inbox.SqliteConnection(tmp_path / "store.sqlite"))
    database.execute("CREATE TABLE effects (id TEXT)")
    store = inbox.SqliteStore(database)
    async with store.once(inbox.Message("a", "k", b"")):
        pass
    for statement in ("BEGIN", "COMMIT"):
        database.execute(statement)

    async def commit_half() -> None:
        async with store.once(inbox.Message("b", "k", b"")):
            database.execute("INSERT INTO effects VALUES ('b')")
            database.execute("COMMIT")

    with pytest.raises(inbox.OutsideBlock):
        await commit_half()

    assert database.execute("SELECT * FROM effects").fetchall() == []


def test_a_transaction_outside_of_blocks_is_its_callers(tmp_path: Path) -> None:
    database = inbox.SqliteConnection(tmp_path / "store.sqlite")
    database.execute("CREATE TABLE effects (id TEXT)")

    with contextlib.closing(sqlite3.connect(tmp_path / "store.sqlite")) as another:
        for end, count in ((database.rollback, 0), (database.commit, 1)):
            database.execute("BEGIN")
            database.execute("INSERT INTO effects VALUES ('a')")
            end()
            assert len(another.execute("SELECT * FROM effects").fetchall()) == count
    database.close()
