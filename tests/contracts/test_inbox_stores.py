"""The contract of a consumer's store, in memory and in SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        self.connection = inbox.SqliteConnection(path)
        # Nothing here has to survive a crash of the machine.
        self.connection.execute("PRAGMA synchronous = off")
        self.connection.execute("CREATE TABLE IF NOT EXISTS effects (id TEXT)")
        self.store = inbox.SqliteStore(self.connection)

    def effect(self, identifier: str) -> None:
        self.connection.execute("INSERT INTO effects VALUES (?)", (identifier,))

    def effects(self) -> list[str]:
        return [row[0] for row in self.connection.execute("SELECT id FROM effects ORDER BY rowid")]


@pytest.fixture(params=[InMemory, InSqlite])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    made: Harness = request.param(tmp_path / "store.sqlite")
    return made


def message(identifier: str, sequence: int | None = None, key: str = "k", topic: str = "events") -> inbox.Message:
    return inbox.Message(id=identifier, key=key, body=b"{}", sequence=sequence, topic=topic)


def gap(entity: str, first: int, last: int, *, key: str | None = None, topic: str = "events") -> inbox.Gap:
    return inbox.Gap(entity, first, last, key or entity, topic)


async def handle(
    harness: Harness,
    identifier: str,
    sequence: int | None = None,
    *,
    key: str = "k",
    entity: str | None = None,
    topic: str = "events",
) -> inbox.Arrival:
    """Handle a message, with an effect if it is the first delivery."""
    async with harness.store.once(message(identifier, sequence, key, topic), entity=entity) as arrival:
        if arrival.first:
            harness.effect(identifier)
    return arrival


async def test_a_message_is_first_once(harness: Harness) -> None:
    arrivals = [await handle(harness, identifier) for identifier in ("a", "b", "a", "a")]

    assert [arrival.first for arrival in arrivals] == [True, True, False, False]
    assert harness.effects() == ["a", "b"]


async def test_the_same_id_in_another_key_or_topic_is_another_event(harness: Harness) -> None:
    places = [("k", "events"), ("l", "events"), ("k", "orders")]
    for expected in (True, False):
        arrivals = [await handle(harness, "a", 1, key=key, topic=topic) for key, topic in places]
        assert [arrival.first for arrival in arrivals] == [expected] * 3

    assert harness.effects() == ["a", "a", "a"]


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
    assert await harness.store.gaps() == [gap("k", 6, 8), gap("k", 11, 11)]

    assert await handle(harness, "e7", 7) == inbox.Arrival(first=True, late=True)
    assert await handle(harness, "e7", 7) == inbox.Arrival(first=False)
    assert await harness.store.gaps() == [gap("k", 6, 6), gap("k", 8, 8), gap("k", 11, 11)]

    for sequence in (6, 8, 11):
        await handle(harness, f"e{sequence}", sequence)
    assert await harness.store.gaps() == []
    assert await handle(harness, "e13", 13) == inbox.Arrival(first=True)


async def test_a_number_that_was_never_missing_is_late_and_fills_nothing(harness: Harness) -> None:
    for sequence in (3, 5):
        await handle(harness, f"e{sequence}", sequence)

    assert (await handle(harness, "again", 3)).late
    assert (await handle(harness, "before the first", 1)).late
    assert await harness.store.gaps() == [gap("k", 4, 4)]


async def test_a_gap_costs_the_same_whatever_its_size(harness: Harness) -> None:
    await handle(harness, "a", 1)
    await handle(harness, "b", 10**15)

    assert await harness.store.gaps() == [gap("k", 2, 10**15 - 1)]


async def test_entities_count_by_themselves(harness: Harness) -> None:
    await handle(harness, "a1", 1, key="a")
    await handle(harness, "b2", 2, key="b")
    await handle(harness, "b4", 4, key="b")
    await handle(harness, "x1", 1, key="a", entity="x")
    await handle(harness, "x3", 3, key="a", entity="x")
    await handle(harness, "a2", 2, key="a")
    await handle(harness, "unnumbered", None, key="a")

    assert await harness.store.gaps() == [gap("b", 3, 3), gap("x", 2, 2, key="a")]


async def test_an_entity_of_another_key_or_topic_is_another_entity(harness: Harness) -> None:
    for sequence in (1, 3):
        await handle(harness, f"{sequence}", sequence, key="a", entity="x")
    for place in ({"key": "b"}, {"key": "a", "topic": "orders"}):
        arrivals = [await handle(harness, f"{sequence}", sequence, entity="x", **place) for sequence in (5, 6)]
        assert arrivals == [inbox.Arrival(first=True)] * 2

    assert await harness.store.gaps() == [gap("x", 2, 2, key="a")]


async def test_a_task_inside_a_block_does_not_wait_for_itself(harness: Harness) -> None:
    async def nested() -> None:
        async with harness.store.once(message("a")), harness.store.once(message("b")):
            pass

    with pytest.raises(RuntimeError, match="already inside a block"):
        await asyncio.wait_for(nested(), 5)
    async with harness.store.once(message("a", 1)):
        assert await asyncio.wait_for(harness.store.gaps(), 5) == []


async def test_a_task_that_outlives_its_block_may_enter_the_next(harness: Harness) -> None:
    left = asyncio.Event()

    async def later() -> bool:
        await left.wait()
        return (await handle(harness, "b")).first

    async with harness.store.once(message("a")):
        task = asyncio.create_task(later())
    left.set()

    assert await asyncio.wait_for(task, 5)


@pytest.mark.parametrize("sequence", [2**63, 2**64 - 1, -(2**63)])
async def test_a_number_that_no_database_stores_is_dead_lettered(harness: Harness, sequence: int) -> None:
    with pytest.raises(inbox.DeadLetter) as refused:
        await handle(harness, "a", sequence)

    assert refused.value.reason == "invalid-sequence"
    assert (await handle(harness, "a", 2**63 - 1)).first
    assert harness.effects() == ["a"]


@given(numbers=st.lists(st.integers(1, 30), max_size=60))
async def test_gaps_are_what_a_set_of_numbers_says(numbers: list[int]) -> None:
    with TemporaryDirectory() as folder:
        harnesses = [InMemory(Path()), InSqlite(Path(folder) / "store.sqlite")]
        seen: set[int] = set()
        for index, number in enumerate(numbers):
            missing = range(max(seen, default=number) + 1, number) if seen else range(0)
            expected = inbox.Arrival(True, missing or range(0), bool(seen) and number <= max(seen))
            for harness in harnesses:
                assert await handle(harness, f"e{index}", number) == expected
            seen.add(number)
        lost = set(range(numbers[0] if numbers else 0, max(seen, default=0))) - seen
        for harness in harnesses:
            found = [number for each in await harness.store.gaps() for number in range(each.first, each.last + 1)]
            # Below the first event, nothing counts as missing.
            assert found == sorted(lost)


async def test_forgotten_ids_are_first_again_and_gaps_stay(harness: Harness) -> None:
    await handle(harness, "a", 1)
    await handle(harness, "b", 3)

    assert await harness.store.forget(timedelta(hours=1)) == 0
    assert not (await handle(harness, "a", 1)).first
    assert await harness.store.forget(timedelta(seconds=-1)) == 2
    assert await harness.store.gaps() == [gap("k", 2, 2)]
    assert await handle(harness, "a", 1) == inbox.Arrival(first=True, late=True)


async def test_a_message_without_an_id_is_refused(harness: Harness) -> None:
    with pytest.raises(inbox.DeadLetter, match="no-message-id"):
        await handle(harness, "")


@pytest.mark.parametrize("part", ["id", "key", "topic", "entity"])
async def test_half_a_surrogate_pair_is_dead_lettered(harness: Harness, part: str) -> None:
    parts = {"identifier": "a", "key": "k", "topic": "events", "entity": "e"}
    parts["identifier" if part == "id" else part] = "\ud800"

    with pytest.raises(inbox.DeadLetter, match=f"invalid-identity: The {part} "):
        await handle(harness, sequence=1, **parts)
    assert harness.effects() == []


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
    connection = inbox.SqliteConnection(tmp_path / "store.sqlite")
    one, other = (inbox.SqliteStore(connection, consumer=name) for name in ("one", "other"))

    for store in (one, other):
        async with store.once(message("a", 5)) as arrival:
            assert arrival.first
    async with one.once(message("b", 7)) as arrival:
        assert arrival.missing == range(6, 7)
    assert await other.gaps() == []


def test_a_connection_that_lets_every_handler_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"inbox\.SqliteConnection"):
        inbox.SqliteStore(sqlite3.connect(tmp_path / "store.sqlite"))  # type: ignore[arg-type]


async def test_a_write_outside_of_a_block_is_refused_while_another_block_is_open(tmp_path: Path) -> None:
    harness = InSqlite(tmp_path / "store.sqlite")
    database = harness.connection
    inside, leave = asyncio.Event(), asyncio.Event()

    async def roll_back() -> None:
        async with harness.store.once(message("a")):
            harness.effect("a")
            inside.set()
            await leave.wait()
            raise OSError("the block fails")

    failing = asyncio.create_task(roll_back())
    await asyncio.wait_for(inside.wait(), 5)
    refused: list[Callable[[], object]] = [
        lambda: harness.effect("outside"),
        lambda: database.executemany("INSERT INTO effects VALUES (?)", [("outside",)]),
        lambda: database.executescript("INSERT INTO effects VALUES ('outside')"),
        lambda: database.cursor().execute("INSERT INTO effects VALUES ('outside')"),
        harness.effects,  # what is not committed
        database.commit,
        database.rollback,
        database.__enter__,
    ]
    for write in refused:
        with pytest.raises(inbox.OutsideBlock):
            write()
    leave.set()
    with pytest.raises(OSError, match="the block fails"):
        await failing

    harness.effect("outside")  # commits by itself
    assert harness.effects() == ["outside"]


def test_a_cursor_that_would_not_check_its_statements_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cursors of its own"):
        inbox.SqliteConnection(tmp_path / "store.sqlite").cursor(sqlite3.Cursor)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["with", "with, and an error", "isolation_level"])
async def test_nothing_that_another_handler_ends_commits_half_a_block(tmp_path: Path, end: str) -> None:
    harness = InSqlite(tmp_path / "store.sqlite")
    inside, leave = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        async with harness.store.once(message("a")):
            harness.effect("first half")
            inside.set()
            await leave.wait()
            harness.effect("second half")

    async def start_block() -> asyncio.Task[None]:
        task = asyncio.create_task(block())
        await asyncio.wait_for(inside.wait(), 5)
        return task

    if end == "isolation_level":
        task = await start_block()
        with pytest.raises(sqlite3.DatabaseError):
            harness.connection.isolation_level = None
    else:
        with contextlib.suppress(OSError), harness.connection:
            task = await start_block()
            if "error" in end:
                raise OSError("the other handler fails")
    leave.set()
    await task

    assert harness.effects() == ["first half", "second half"]


async def test_a_task_of_the_handler_may_write_inside_its_block(tmp_path: Path) -> None:
    harness = InSqlite(tmp_path / "store.sqlite")

    async def part() -> None:
        harness.effect("part")

    async with harness.store.once(message("a")):
        await asyncio.create_task(part())

    assert harness.effects() == ["part"]


@pytest.mark.parametrize("end", ["commit", "rollback", "with", "executescript", "COMMIT", "ROLLBACK"])
async def test_a_block_whose_transaction_the_handler_ends_fails(tmp_path: Path, end: str) -> None:
    harness = InSqlite(tmp_path / "store.sqlite")
    database = harness.connection

    async def handler() -> None:
        async with harness.store.once(message("a")) as arrival:
            assert arrival.first
            harness.effect("first half")
            if end == "with":
                with database:
                    pass
            elif end == "executescript":
                database.executescript("SELECT 1")
            elif end.isupper():
                database.execute(end)
            else:
                getattr(database, end)()
            harness.effect("a")

    with pytest.raises(inbox.OutsideBlock):
        await handler()
    assert harness.effects() == []
    assert (await handle(harness, "a")).first


async def test_two_stores_on_one_connection_take_turns(tmp_path: Path) -> None:
    connection = inbox.SqliteConnection(tmp_path / "store.sqlite")
    one, other = (inbox.SqliteStore(connection, consumer=name) for name in ("one", "other"))

    async def block(store: inbox.Store) -> bool:
        async with store.once(message("a")) as arrival:
            await asyncio.sleep(0.01)
            return arrival.first

    found = await asyncio.gather(block(one), block(other), other.forget(timedelta(days=1)))
    assert list(found) == [True, True, 0]


async def test_a_gap_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """Counted: the bytes of the statements that are executed, with their values."""
    harness = InSqlite(tmp_path / "store.sqlite")
    written = 0

    def count(statement: str) -> None:
        nonlocal written
        written += len(statement)

    async def cost(first: int) -> int:
        before = written
        for number in range(first, first + 200, 2):
            await handle(harness, f"e{number:06}", number)
        return written - before

    harness.connection.set_trace_callback(count)
    early, rows = await cost(100_001), harness.connection.total_changes
    for number in range(100_201, 102_201, 2):
        await handle(harness, f"e{number:06}", number)
    late = await cost(102_201)

    assert len(await harness.store.gaps()) == 1199
    assert late < 1.1 * early
    assert harness.connection.total_changes - rows <= 4 * 1100


_VERSION_1 = """
CREATE TABLE inbox_handled (
    consumer TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (consumer, id)
) WITHOUT ROWID;
CREATE INDEX inbox_handled_at ON inbox_handled (consumer, at);
CREATE TABLE inbox_progress (
    consumer TEXT NOT NULL, entity TEXT NOT NULL, last INTEGER NOT NULL, gaps TEXT NOT NULL,
    PRIMARY KEY (consumer, entity)
) WITHOUT ROWID;
INSERT INTO inbox_handled VALUES ('default', 'old', 1), ('other', 'theirs', 1);
INSERT INTO inbox_progress VALUES ('default', 'k', 12, '[[6, 8], [11, 11]]'), ('other', 'k', 3, '[]');
"""


def store_of_version_1(path: Path) -> None:
    """A store as the version made it that identified events by their ids alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(_VERSION_1)
    connection.close()


async def test_what_was_handled_before_a_migration_stays_handled(tmp_path: Path) -> None:
    store_of_version_1(tmp_path / "store.sqlite")
    for _ in range(2):  # the second finds nothing to do
        harness = InSqlite(tmp_path / "store.sqlite")
        for key in ("k", "l"):
            assert not (await handle(harness, "old", 4, key=key)).first
        assert await harness.store.gaps() == [inbox.Gap("k", 6, 8), inbox.Gap("k", 11, 11)]
    assert (await handle(harness, "theirs")).first

    assert await handle(harness, "e7", 7) == inbox.Arrival(first=True, late=True)
    assert await handle(harness, "e14", 14) == inbox.Arrival(first=True, missing=range(13, 14))
    assert await harness.store.gaps() == [gap("k", *each) for each in ((6, 6), (8, 8), (11, 11), (13, 13))]
    assert await harness.store.forget(timedelta(days=1)) == 1
    assert (await handle(harness, "old")).first


async def test_a_migration_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store_of_version_1(path)
    broken = sqlite3.connect(path, isolation_level=None)
    broken.execute("UPDATE inbox_progress SET gaps = 'not JSON' WHERE consumer = 'default'")
    with pytest.raises(sqlite3.OperationalError, match="malformed JSON"):
        InSqlite(path)

    assert broken.execute("SELECT id FROM inbox_handled ORDER BY id").fetchall() == [("old",), ("theirs",)]
    broken.execute("UPDATE inbox_progress SET gaps = '[]'")
    assert not (await handle(InSqlite(path), "old")).first


_OPENING = """
import sys, inbox
print("ready", flush=True)
sys.stdin.readline()
inbox.SqliteStore(inbox.SqliteConnection(sys.argv[1]))
"""


async def test_processes_that_open_a_store_at_once_migrate_it_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store_of_version_1(path)
    opening = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _OPENING,
            str(path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(3)
    ]
    async with asyncio.timeout(30):
        for each in opening:
            assert each.stdout is not None
            await each.stdout.readline()
        await asyncio.gather(*(each.communicate(b"go\n") for each in opening))
    assert [each.returncode for each in opening] == [0] * 3

    harness = InSqlite(path)
    assert not (await handle(harness, "old")).first
    assert await harness.store.gaps() == [inbox.Gap("k", 6, 8), inbox.Gap("k", 11, 11)]


async def test_a_handler_of_the_earlier_version_repeats_no_effect_after_the_migration(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store_of_version_1(path)
    earlier = sqlite3.connect(path, isolation_level=None)
    harness = InSqlite(path)
    assert (await handle(harness, "new")).first

    with pytest.raises(sqlite3.OperationalError):
        earlier.execute("INSERT INTO inbox_handled VALUES (?, ?, ?) ON CONFLICT DO NOTHING", ("default", "new", 1))


def test_a_store_of_a_later_version_is_refused(tmp_path: Path) -> None:
    harness = InSqlite(tmp_path / "store.sqlite")
    harness.connection.execute("UPDATE inbox_schema SET version = 99")

    with pytest.raises(ValueError, match="version 99"):
        InSqlite(tmp_path / "store.sqlite")
