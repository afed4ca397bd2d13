"""Creates and migrates the tables, and records handled messages and the progress of entities, in any SQL database.

Each operation runs in one transaction. That of `record` is the handler's: what it locks, the message's row and the
row of the entity's progress, stays locked until the handler's own changes are committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from typing import Any

from outbox_relay.inbox.stores.port import Arrival, Gap, Identity, advance
from outbox_relay.inbox.stores.sql.dialects import (
    MAX_CONSUMER_BYTES,
    Dialect,
    Expression,
    Operation,
    Statement,
    value,
)

ROWS = 2_000
"""Maximum rows that one call of `forget` deletes. Above 5,000 locks, SQL Server locks the whole table.
https://learn.microsoft.com/troubleshoot/sql/database-engine/performance/resolve-blocking-problems-caused-lock-escalation
"""


class Recording:
    """The operations of one consumer.

    Args:
        dialect: Of the database.
        consumer: The consumer's name.

    Raises:
        ValueError: The name is empty or too long, or contains U+0000.
    """

    def __init__(self, dialect: Dialect, consumer: str) -> None:
        if not consumer or "\0" in consumer or len(consumer.encode()) > MAX_CONSUMER_BYTES:
            raise ValueError(f"consumer is {consumer!r}: write a name of 1 to {MAX_CONSUMER_BYTES} bytes.")
        self.dialect = dialect
        self.consumer: Any = dialect.text(consumer, "consumer")

    def record(self, event: Identity, entity: str, sequence: int | None) -> Operation[Arrival]:
        """Record that a message is handled.

        Raises:
            DeadLetter: The database cannot hold the message's identity: `invalid-identity`.
        """
        text = self.dialect.text
        topic, key, identifier = text(event.topic, "topic"), text(event.key, "key"), text(event.id, "id")
        entity = text(entity, "entity")
        if not (yield from self._note(topic, key, identifier)):
            return Arrival(first=False)
        if sequence is None:
            return Arrival(first=True)
        return (yield from self._advance((self.consumer, topic, key, entity), sequence))

    def is_handled(self, event: Identity) -> Operation[bool]:
        """Return True if `record` was called for a message, and not undone."""
        row = self._row(event)
        result = yield Statement(
            f"select count(*) from {self.dialect.table('handled')} where {row.sql}", row.parameters
        )
        return bool(result.rows[0][0])

    def is_unbroken(self, event: Identity, mark: object) -> Operation[bool]:
        """Return True if the transaction is still the one that was marked, and has recorded a message.

        Args:
            event: The identity of the message.
            mark: As `Dialect.mark` returned it.
        """
        return (yield from self.dialect.is_marked(mark, self._row(event)))

    def gaps(self) -> Operation[list[Gap]]:
        """See `Store.gaps`."""
        result = yield Statement(
            f'select entity, gap.first, gap.last, "key", topic from {self.dialect.table("progress")} as counted'
            f" join {self.dialect.table('gaps')} as gap on gap.progress = counted.progress"
            ' where consumer = ? order by entity, "key", topic, gap.first',
            (self.consumer,),
        )
        string = self.dialect.string
        return [
            Gap(string(entity) or "", first, last, string(key), string(topic))
            for entity, first, last, key, topic in result.rows
        ]

    def forget(self, older_than: timedelta) -> Operation[int]:
        """Delete up to `ROWS` old records, and return how many: call it until it deletes fewer."""
        limit = self.dialect.after(-older_than.total_seconds())
        old = Expression(f"consumer = ? and at < {limit.sql}", (self.consumer, *limit.parameters))
        result = yield self.dialect.delete_some("handled", old, ROWS)
        return result.changed

    def _row(self, event: Identity) -> Expression:
        text = self.dialect.text
        topic, key, identifier = text(event.topic, "topic"), text(event.key, "key"), text(event.id, "id")
        condition = 'consumer = ? and topic = ? and "key" = ? and id = ?'
        return Expression(condition, (self.consumer, topic, key, identifier))

    def _note(self, topic: object, key: object, identifier: object) -> Operation[bool]:
        unless = None
        if self.dialect.unknown_keys:
            unless = Expression(
                f"exists (select 1 from {self.dialect.table('handled')}"
                ' where consumer = ? and id = ? and "key" is null)',
                (self.consumer, identifier),
            )
        row = {
            "consumer": value(self.consumer),
            "topic": value(topic),
            "key": value(key),
            "id": value(identifier),
            "at": self.dialect.after(0),
        }
        return (yield from self.dialect.insert_new("handled", row, unless))

    def _advance(self, place: tuple[object, ...], sequence: int) -> Operation[Arrival]:
        table = self.dialect.table("progress")
        # The usual case takes one statement; `advance` says the same of it.
        result = yield Statement(
            f"update {table} set last = ?"
            ' where consumer = ? and topic = ? and "key" = ? and entity = ? and last = ?',
            (sequence, *place, sequence - 1),
        )
        if result.changed:
            return Arrival(first=True)
        found = yield from self._find(place)
        if found is None:
            step = advance(None, None, sequence)
            names = ("consumer", "topic", "key", "entity", "last")
            row = {name: value(each) for name, each in zip(names, (*place, step.last), strict=True)}
            if (yield from self.dialect.insert_new("progress", row)):
                return step.arrival
            # Another transaction has inserted it meanwhile.
            found = yield from self._find(place)
            if found is None:
                raise LookupError("The row of the entity's progress is gone: somebody else has deleted it.")
        return (yield from self._take(*found, sequence))

    def _find(self, place: tuple[object, ...]) -> Operation[tuple[int, int] | None]:
        """Lock the row of an entity's progress, and return its number and the highest handled number."""
        table, dialect = self.dialect.table("progress"), self.dialect
        consumer, topic, key, entity = place
        result = yield Statement(
            f'select progress, last from {table}{dialect.hint} where consumer = ? and topic = ? and "key" = ?'
            f" and entity = ?{dialect.for_update}",
            place,
        )
        if not result.rows and dialect.unknown_keys:
            result = yield Statement(
                f'select progress, last from {table} where consumer = ? and entity = ? and "key" is null',
                (consumer, entity),
            )
            for progress, _ in result.rows:
                yield Statement(
                    f'update {table} set "key" = ?, topic = ? where progress = ?', (key, topic, progress)
                )
        for progress, last in result.rows:
            return progress, last
        return None

    def _take(self, progress: int, last: int, sequence: int) -> Operation[Arrival]:
        gaps = self.dialect.table("gaps")
        # A number above `last` is in no gap.
        gap = (yield from self._gap(progress, sequence)) if sequence <= last else None
        step = advance(last, gap, sequence)
        if step.last != last:
            yield Statement(
                f"update {self.dialect.table('progress')} set last = ? where progress = ?", (step.last, progress)
            )
        if step.closed is not None:
            yield Statement(f"delete from {gaps} where progress = ? and first = ?", (progress, step.closed.start))
        for opened in step.opened:
            yield Statement(
                f"insert into {gaps} (progress, first, last) values (?, ?, ?)",
                (progress, opened.start, opened.stop - 1),
            )
        return step.arrival

    def _gap(self, progress: int, sequence: int) -> Operation[range | None]:
        result = yield Statement(
            f"select first, last from {self.dialect.table('gaps')} where progress = ? and first <= ?"
            f" order by first desc{self.dialect.at_most(1)}",
            (progress, sequence),
        )
        for first, last in result.rows:
            return range(first, last + 1) if sequence <= last else None
        return None


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the tables.

    Attributes:
        version: Its number, which the tables record. The first is that of 0.1.0.
        statements: Its statements. A table's name, such as `inbox_handled`, is written without a schema.
    """

    version: int
    statements: tuple[str, ...]


def migrations(dialect: Dialect) -> list[Migration]:
    """Return all migrations of a database, in order."""
    folder = resources.files("outbox_relay.inbox.stores.sql").joinpath("migrations", dialect.name)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), _statements(file.read_text("utf-8"), dialect)) for file in files]


def install(dialect: Dialect) -> Operation[None]:
    """Create the tables, or migrate them, in one transaction. Of two processes, the second waits for the first.

    Raises:
        WrongTables: A later version of this library has made the tables, or one before 0.1.0.
    """
    known = migrations(dialect)
    if not _unapplied(known, (yield from _version(dialect))):
        return
    if dialect.lock_tables is not None:
        yield dialect.lock_tables
    missing = _unapplied(known, (yield from _version(dialect)))
    schema = dialect.table("schema")
    if not (yield dialect.has_table("schema")).rows:
        yield Statement(f"create table {schema} (version integer not null)")
    for migration in missing:
        for statement in migration.statements:
            yield Statement(statement)
        yield Statement(f"insert into {schema} (version) values (?)", (migration.version,))


def check(dialect: Dialect) -> Operation[None]:
    """Return if the tables are there in this version. It creates and migrates nothing.

    Raises:
        WrongTables: They are not.
    """
    version, known = (yield from _version(dialect)), migrations(dialect)
    if not version:
        raise WrongTables(
            "It has no tables of inbox: no consumer has used it, or the address names another store."
        )
    if _unapplied(known, version):
        raise WrongTables(
            f"The inbox tables have version {version}, and this library knows {known[-1].version}: "
            "they are migrated when a consumer with this version starts."
        )


class WrongTables(ValueError):
    """The tables of a store are not those of this version."""


def _unapplied(known: list[Migration], version: int) -> list[Migration]:
    """Return the migrations after the tables' version, 0 if there are none. Raises WrongTables."""
    first, newest = known[0].version, known[-1].version
    if version > newest:
        raise WrongTables(f"The inbox tables have version {version}, and this library knows {newest}: update it.")
    if 0 < version < first:
        raise WrongTables(
            f"The inbox tables have version {version}, of a development version before 0.1.0, and this "
            f"library migrates from {first} on: migrate them with app-v0.1.0 first."
        )
    return [migration for migration in known if migration.version > version]


def _version(dialect: Dialect) -> Operation[int]:
    # In this order: another process may commit both tables between the two statements.
    is_made = bool((yield dialect.has_table("handled")).rows)
    if (yield dialect.has_table("schema")).rows:
        found = yield Statement(f"select max(version) from {dialect.table('schema')}")
        return found.rows[0][0] or 0
    # Version 1 has recorded none.
    return int(is_made)


def _statements(text: str, dialect: Dialect) -> tuple[str, ...]:
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    placed = "\n".join(lines).replace("{inbox}", dialect.table(""))
    return tuple(part.strip() for part in placed.split(";") if part.strip())
