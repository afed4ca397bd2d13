"""Where a consumer keeps its effects and `inbox` its notes of them: what outlives the process or does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import count
from typing import Protocol

from outbox_relay import inbox
from verification.simulation.world import Process

# Databases in memory are shared by name within the interpreter.
_names = count()

_CREATE = """
CREATE TABLE effects (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, key TEXT, entity TEXT, sequence INTEGER,
    body TEXT, action TEXT, enqueued INTEGER
)
"""
_ADD = "INSERT INTO effects (id, key, entity, sequence, body, action, enqueued) VALUES (?, ?, ?, ?, ?, ?, ?)"
_NEW = "SELECT * FROM effects WHERE number > ? ORDER BY number"


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of handling an event; `enqueued` is the subscription's number of the message."""

    id: str
    key: str
    entity: str
    sequence: int | None
    body: str
    action: str
    enqueued: int


class Desk(Protocol):
    """The working parts of one process of a consumer.

    Attributes:
        rolls_back: Whether effects are undone if their block fails. Otherwise they have to come last in it.
        parking: Where keys are parked, if they are.
    """

    rolls_back: bool
    parking: inbox.Parking | None

    @property
    def store(self) -> inbox.Store:
        """The store that notes the handled messages."""

    def add(self, effect: Effect) -> None:
        """Add an effect, within the block of `once`."""


class Ledger(Protocol):
    """The effects of one consumer."""

    def open(self, process: Process) -> Desk:
        """Open it in a process."""

    def news(self) -> Iterator[Effect]:
        """Yield the effects since the last call, if they are there for good."""

    @property
    def has_parked_keys(self) -> bool:
        """True if a key is parked."""


class SqliteDesk:
    """A connection of a process; when it is killed, what it has not committed is rolled back."""

    rolls_back = True

    def __init__(self, connection: inbox.SqliteConnection, process: Process) -> None:
        self._connection = connection
        self.store = inbox.SqliteStore(connection)
        self.parking: inbox.Parking | None = self.store
        process.on_death(self._died)

    def add(self, effect: Effect) -> None:
        self._connection.execute(_ADD, astuple(effect))

    def _died(self) -> None:
        # Not closed: the objects of the process are destroyed later, and end their blocks then.
        self._connection.set_authorizer(None)
        sqlite3.Connection.rollback(self._connection)


class SqliteLedger:
    """A database whose writes outlive the processes that share it."""

    def __init__(self) -> None:
        # A virtual file in memory, with the locks of a real one: https://sqlite.org/src/file/src/memdb.c
        self._uri = f"file:/simulation-{next(_names)}?vfs=memdb"
        self._keeper = sqlite3.connect(self._uri, uri=True, isolation_level=None, timeout=0)
        self._keeper.execute(_CREATE)
        self._seen = 0

    def open(self, process: Process) -> SqliteDesk:
        # Without a time to wait for others: that would be real time.
        return SqliteDesk(inbox.SqliteConnection(self._uri, uri=True, timeout=0), process)

    @property
    def has_parked_keys(self) -> bool:
        try:
            return bool(self._keeper.execute("SELECT 1 FROM inbox_parked_keys LIMIT 1").fetchone())
        except sqlite3.OperationalError:
            return True  # another process is about to commit

    def news(self) -> Iterator[Effect]:
        try:
            rows = self._keeper.execute(_NEW, (self._seen,)).fetchall()
        except sqlite3.OperationalError:
            return  # another process is about to commit
        for number, *row in rows:
            self._seen = number
            yield Effect(*row)


class MemoryDesk:
    """A store in memory, and effects in memory."""

    rolls_back = False
    parking: inbox.Parking | None = None

    def __init__(self) -> None:
        self.store = inbox.MemoryStore()
        self.effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        self.effects.append(effect)


class MemoryLedger:
    """Effects that end with the process: for one that is not killed."""

    has_parked_keys = False

    def __init__(self) -> None:
        self._desk = MemoryDesk()
        self._seen = 0

    def open(self, process: Process) -> MemoryDesk:
        return self._desk

    def news(self) -> Iterator[Effect]:
        new = self._desk.effects[self._seen :]
        self._seen += len(new)
        yield from new
