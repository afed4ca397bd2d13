"""What `check` reads of an SQL outbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from relay.cli.check.facts import Gap


class Engine(StrEnum):
    """The kinds of database."""

    POSTGRESQL = "PostgreSQL"
    SQL_SERVER = "SQL Server"


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """A table or a routine, and the rights of this login on it.

    Attributes:
        exists: Whether there is one; False also where the login may not see it.
        rights: `select`, `insert`, `update`, `delete`, `execute`.
    """

    exists: bool
    rights: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """The tables and routines of the feed, by what each is for.

    Attributes:
        version: The version of the schema `changefeed`; None if it cannot be read with these rights.
        newest: The version that this version of the relay brings.
        objects: `events` (the event table), `outbox`, `feed`, `state`, `claim`, `migration`, `outbox_feed`,
            `read_events`, `read_feed`, `has_news`, `quarantine`.
        columns: The types of the event table's columns, without lengths.
        primary_key: The columns of its primary key, in order.
    """

    version: int | None
    newest: int
    objects: Mapping[str, ObjectFacts]
    columns: Mapping[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """How the database is configured.

    Attributes:
        isolation: The default isolation level of PostgreSQL; None on SQL Server.
        snapshots: Whether READ_COMMITTED_SNAPSHOT is on; None on PostgreSQL, which always reads snapshots.
        autovacuum: Whether autovacuum runs on the server; None on SQL Server.
        now_ms: The server's clock, in milliseconds since 1970.
    """

    isolation: str | None
    snapshots: bool | None
    autovacuum: bool | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class MaintenanceFacts:
    """What decides how fast the outbox table is read.

    Attributes:
        sequence_cache: How many numbers a session takes from the outbox's sequence at a time; None on SQL Server,
            whose identities have no cache of a session.
        notifies: Whether commits notify readers; None where that cannot be read.
        without_autovacuum: The tables of the feed for which autovacuum is turned off.
        oldest_transaction_s: How long the oldest visible transaction of the database has been open.
        undecided: Whether nobody has decided how long positions are kept.
    """

    sequence_cache: int | None = None
    notifies: bool | None = None
    without_autovacuum: tuple[str, ...] = ()
    oldest_transaction_s: float = 0.0
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """How large the feed is.

    Attributes:
        rows: Number of its positions, as the server estimates it.
        bytes: Their size with the index.
        since_s: The age of the oldest position.
    """

    rows: int
    bytes: int
    since_s: float


class Owner(StrEnum):
    """Who reads a shard."""

    NOBODY = "nobody"
    ALIVE = "alive"
    SILENT = "silent"  # it has not renewed its claim for as long as a claim lasts


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """One of the shards that the relay reads.

    Attributes:
        shard_id: The shard.
        owner: Who reads it.
        ahead: Whether the relay's cursor is ahead of the last position given; None if that cannot be read.
        oldest_s: The age of the oldest event of the feed that is not published; None if there is none, or if it
            cannot be read.
    """

    shard_id: int
    owner: Owner
    ahead: bool | None = False
    oldest_s: float | None = None


@dataclass(frozen=True, slots=True)
class WaitingFacts:
    """The rows of a shard that are still in the outbox table.

    Attributes:
        rows: How many.
        oldest_s: The age of the oldest, by its time hint.
    """

    rows: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class SqlFacts:
    """An SQL outbox; what follows a gap was not read.

    Attributes:
        engine: The kind of database.
        server: Its configuration, or why it cannot be reached.
        schema: None where `server` is a gap.
        maintenance: None where the feed is not set up.
        waiting: The rows in the outbox table by shard; None if they cannot be read with these rights.
        shards: The shards that the relay reads; none if the claims cannot be read.
        given_up: Shards that a relay has read before, which are not among them and have events left in the feed.
        size: None if the feed is empty, or if that cannot be read with these rights.
    """

    engine: Engine
    server: ServerFacts | Gap
    schema: SchemaFacts | None = None
    maintenance: MaintenanceFacts | None = None
    waiting: Mapping[int, WaitingFacts] | None = None
    shards: tuple[ShardFacts, ...] = ()
    given_up: tuple[int, ...] = ()
    size: SizeFacts | None = None
