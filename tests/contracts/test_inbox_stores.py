"""What a consumer's handler asks of a store, in memory and in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from datetime import timedelta
from pathlib import Path

import pytest

import inbox


class Harness(ABC):
    """A store, with a place for effects."""

    store: inbox.Store

    @abstractmethod
    def effect(self, identifier: str) -> None:
        """Have an effect, inside the block."""

    @abstractmethod
    def effects(self) -> list[str]:
        """All effects, in their order."""


class InMemory(Harness):
    def __init__(self, path: Path) -> None:
        self.store = inbox.MemoryStore()
        self._effects: list[str] = []

    def effect(self, identifier: str) -> None:
        self._effects.append(identifier)

    def effects(self) -> list[str]:
        return self._effects


class InSqlite(Harness):
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("CREATE TABLE IF NOT EXISTS effects (id TEXT)")
        self.store = inbox.SqliteStore(self._connection)

    def effect(self, identifier: str) -> None:
        self._connection.execute("INSERT INTO effects VALUES (?)", (identifier,))

    def effects(self) -> list[str]:
        return [row[0] for row in self._connection.execute("SELECT id FROM effects ORDER BY rowid")]


@pytest.fixture(params=[InMemory, InSqlite])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    made: Harness = request.param(tmp_path / "store.sqlite")
    return made


def message(identifier: str, sequence: int | None = None, key: str = "k") -> inbox.Message:
    return inbox.Message(id=identifier, key=key, body=b"{}", sequence=sequence)


async def handle(
    harness: Harness, identifier: str, sequence: int | None = None, *, key: str = "k", entity: str | None = None
) -> inbox.Arrival:
    """Handle a message, with an effect if it is the first with its id."""
    async with harness.store.once(message(identifier, sequence, key), entity=entity) as arrival:
        if arrival.first:
            harness.effect(identifier)
    return arrival


async def test_a_message_is_first_once(harness: Harness) -> None:
    arrivals = [await handle(harness, identifier) for identifier in ("a", "b", "a", "a")]

    assert [arrival.first for arrival in arrivals] == [True, True, False, False]
    assert harness.effects() == ["a", "b"]


async def test_a_message_whose_block_raises_was_never_seen(harness: Harness) -> None:
    async def fail(error: BaseException) -> None:
        async with harness.store.once(message("a", 5)) as arrival:
            assert arrival == inbox.Arrival(first=True)
            raise error

    for error in (OSError(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await fail(error)

    assert await handle(harness, "a", 7) == inbox.Arrival(first=True)
    assert await harness.store.gaps() == []


async def test_of_two_deliveries_at_once_one_is_the_first(harness: Harness) -> None:
    inside, leave = asyncio.Event(), asyncio.Event()

    async def slow() -> bool:
        async with harness.store.once(message("a")) as arrival:
            inside.set()
            await leave.wait()
            return arrival.first

    first = asyncio.create_task(slow())
    await asyncio.wait_for(inside.wait(), 5)
    second = asyncio.create_task(handle(harness, "a"))
    await asyncio.sleep(0.01)
    assert not second.done()
    leave.set()

    assert await first
    assert not (await second).first


async def test_skipped_numbers_are_missing_until_they_arrive(harness: Harness) -> None:
    arrivals = [await handle(harness, f"e{sequence}", sequence) for sequence in (4, 5, 9, 10, 12)]
    assert [arrival.missing for arrival in arrivals if arrival.missing] == [range(6, 9), range(11, 12)]
    assert await harness.store.gaps() == [inbox.Gap("k", 6, 8), inbox.Gap("k", 11, 11)]

    assert await handle(harness, "e7", 7) == inbox.Arrival(first=True, late=True)
    assert await handle(harness, "e7", 7) == inbox.Arrival(first=False)
    assert await harness.store.gaps() == [inbox.Gap("k", 6, 6), inbox.Gap("k", 8, 8), inbox.Gap("k", 11, 11)]

    for sequence in (6, 8, 11):
        await handle(harness, f"e{sequence}", sequence)
    assert await harness.store.gaps() == []
    assert await handle(harness, "e13", 13) == inbox.Arrival(first=True)


async def test_a_number_that_was_never_missing_is_late_and_fills_nothing(harness: Harness) -> None:
    for sequence in (3, 5):
        await handle(harness, f"e{sequence}", sequence)

    assert (await handle(harness, "again", 3)).late
    assert (await handle(harness, "before the first", 1)).late
    assert await harness.store.gaps() == [inbox.Gap("k", 4, 4)]


async def test_a_gap_costs_the_same_whatever_its_size(harness: Harness) -> None:
    await handle(harness, "a", 1)
    await handle(harness, "b", 10**15)

    assert await harness.store.gaps() == [inbox.Gap("k", 2, 10**15 - 1)]


async def test_entities_count_by_themselves(harness: Harness) -> None:
    await handle(harness, "a1", 1, key="a")
    await handle(harness, "b2", 2, key="b")
    await handle(harness, "b4", 4, key="b")
    await handle(harness, "x1", 1, key="a", entity="x")
    await handle(harness, "x3", 3, key="a", entity="x")
    await handle(harness, "a2", 2, key="a")
    await handle(harness, "unnumbered", None, key="a")

    assert await harness.store.gaps() == [inbox.Gap("b", 3, 3), inbox.Gap("x", 2, 2)]


async def test_forgotten_ids_are_first_again_and_gaps_stay(harness: Harness) -> None:
    await handle(harness, "a", 1)
    await handle(harness, "b", 3)

    assert await harness.store.forget(timedelta(hours=1)) == 0
    assert not (await handle(harness, "a", 1)).first
    assert await harness.store.forget(timedelta(seconds=-1)) == 2
    assert await harness.store.gaps() == [inbox.Gap("k", 2, 2)]
    assert await handle(harness, "a", 1) == inbox.Arrival(first=True, late=True)


async def test_a_message_without_an_id_is_refused(harness: Harness) -> None:
    with pytest.raises(inbox.DeadLetter, match="no-message-id"):
        await handle(harness, "")


async def test_sqlite_keeps_the_effect_and_the_id_together(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    harness = InSqlite(path)

    async def fail() -> None:
        async with harness.store.once(message("a")):
            harness.effect("a")
            raise OSError("after the effect")

    with pytest.raises(OSError, match="after the effect"):
        await fail()
    assert harness.effects() == []
    await handle(harness, "a")

    # Another process, later.
    again = InSqlite(path)
    assert not (await handle(again, "a")).first
    assert again.effects() == ["a"]


async def test_sqlite_keeps_consumers_apart(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    one, other = (inbox.SqliteStore(connection, consumer=name) for name in ("one", "other"))

    for store in (one, other):
        async with store.once(message("a", 5)) as arrival:
            assert arrival.first
    async with one.once(message("b", 7)) as arrival:
        assert arrival.missing == range(6, 7)
    assert await other.gaps() == []


def test_a_connection_that_begins_its_own_transactions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="isolation_level=None"):
        inbox.SqliteStore(sqlite3.connect(tmp_path / "store.sqlite"))
