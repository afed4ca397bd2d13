"""The port through which the operator's package reads an outbox, and its values.

`relay.backends.backend.Backend.open_outbox` opens it. The modules `reader` of the backends are its adapters, and
`tests/contracts/test_outboxes.py` says what each must do. Nothing here moves a checkpoint.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import AsyncGenerator, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relay.backends.findings import Finding
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.events import Event, EventName, Received, Rejected
from relay.core.place import Place, PlaceInFeed
from relay.quarantine.record import NO_PARTITION_KEY

# Maximum number of characters of an event's texts. A key of Cosmos DB has at most 2 048 bytes; longer ids and keys
# than 128 UTF-16 units are never published. An SQL column has no bound, and nor has `data`.
_KEY = 2048
_ID = 256
_ACTION = 256
_SHORT = 64
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class Committed:
    """An event of the outbox, its texts no longer than can be shown.

    Attributes:
        id, partition_key: As the message contract names them, by `id_name` and `key_name`.
        action, sequence, traceparent: As the message contract names them; None for a number that no database
            counts to.
        committed_at: When the database stored it, in seconds since 1970.
        created_at: When its writer made it, in ISO 8601, as written.
        partition: The `Position.name` that it belongs to.
        place: Its place in the feed of its partition.
        expires_at: When the outbox deletes it, in seconds since 1970; None if never.
    """

    id: str
    partition_key: str
    action: str | None
    committed_at: float
    created_at: str | None
    sequence: int | None
    traceparent: str | None
    partition: str
    place: PlaceInFeed
    expires_at: float | None = None

    @classmethod
    def of(
        cls,
        document: SourceDocument,
        partition: str,
        place: PlaceInFeed,
        committed_at: float,
        expires_at: float | None = None,
    ) -> Committed:
        """Create an event from its document.

        A document that can never become a message is an event here too: it is on its way to quarantine, whose
        record has the same key.
        """
        fields = document.fields
        key = fields.get("partitionKey")
        return cls(
            id=id_name(str(fields.get("id"))),
            partition_key=key_name(key) if isinstance(key, str) else NO_PARTITION_KEY,
            action=_text(document.action, _ACTION),
            committed_at=committed_at,
            created_at=_text(document.created_at, _SHORT),
            sequence=_number(fields.get("sequence")),
            traceparent=_text(fields.get("traceparent"), _SHORT),
            partition=partition,
            place=place,
            expires_at=expires_at,
        )


@dataclass(frozen=True, slots=True)
class Position:
    """The relay's position in one partition: a physical partition with its lease, or a shard with its claim.

    Attributes:
        name: The lease token, or the shard.
        owner: The host or process that holds it; None if none does.
        position: The checkpoint or the cursor, as text; None if nothing is done yet.
        place: Up to and including which `Committed.place` everything is done; None if nothing is.
        renewal: A value that changes whenever the owner shows that it is alive; None if that is not known.
        held_s: Seconds after the last renewal for which the partition stays its owner's.
    """

    name: str
    owner: str | None
    position: str | None
    place: PlaceInFeed | None
    renewal: Hashable = None
    held_s: float = math.inf


@dataclass(frozen=True, slots=True)
class NextPage:
    """The documents behind the relay's position in one partition, as the relay receives them.

    Attributes:
        partition: The `Position.name`.
        received: The page, validated; with documents of other types, which are only counted.
        undeliverable: The findings about documents that the source's host cannot deliver, and behind which nothing
            is received.
    """

    partition: str
    received: Received
    undeliverable: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Events with `since <= time of commit < until`, in whole seconds since 1970.

    Attributes:
        partition_key: Only events of this key.
        action: Only events with this `data.action`.
        ids: Only events with these ids; all if it is empty.
        shard: Only events of this shard of an SQL feed.
        cursor: Only events of an SQL feed behind this position, a ULID, instead of `since`.
    """

    since: int
    until: int
    partition_key: str | None = None
    action: str | None = None
    ids: Collection[str] = ()
    shard: int | None = None
    cursor: str | None = None

    def holds(self, document: SourceDocument) -> bool:
        """Return True if a document has the key, the action and an id of the range."""
        fields = document.fields
        return (
            (self.partition_key is None or fields.get("partitionKey") == self.partition_key)
            and (self.action is None or document.action == self.action)
            and (not self.ids or fields.get("id") in tuple(self.ids))
        )


@dataclass(frozen=True, slots=True)
class Found:
    """An event as the outbox has it.

    Attributes:
        type: The type of its document.
        is_taken: Whether it is an event of this stream, by its type and by the rules.
        passed: Whether the relay has passed it; None if that is unknown.
        places: Its places in the feed: none if that is unknown.
    """

    type: object
    is_taken: bool
    passed: bool | None
    places: Sequence[Place] = ()


@dataclass(frozen=True, slots=True)
class Gone:
    """The part of a range that an SQL feed no longer has.

    Attributes:
        id: The id of the event, or the name of the shard.
        reason: ROW_MISSING or POSITIONS_DELETED.
        detail: What is missing, and from where.
    """

    id: str
    reason: str
    detail: str


ROW_MISSING = "row-missing"
"""The row of the event table does not exist."""

POSITIONS_DELETED = "positions-deleted"
"""Retention has deleted the first positions of a shard's range."""


class Reading(Protocol):
    """The events of a range, read once. Both methods raise ServiceError.

    Attributes:
        unread: Number of events that were counted and still exist, but were not among the pages read so far.
        gone: Missing parts of the pages read so far; the reader may remove them.
    """

    unread: int
    gone: list[Gone]

    async def count(self) -> int | None:
        """Return the number of events, or None if the outbox cannot count them. Called once, before `pages`."""

    def pages(self) -> AsyncGenerator[list[SourceDocument], None]:
        """Yield the documents, in commit order within each partition key."""


class Outbox(Protocol):
    """The events, and how far the relay is. Nothing is connected until the first call.

    Every method raises ServiceError if the outbox cannot be read; `news` and `of_key` raise RulesError if the
    generations of its rules cannot be.
    """

    async def news(self, limit: int, /) -> Sequence[Committed]:
        """Return the events committed since the last call, at most about `limit`, each partition's in order.

        The first call begins at the configured start: at the beginning, or at the relay's positions. An event
        may come twice. Where the rules have generations, those of its commit time count.
        """

    def given_elsewhere(self) -> Collection[EventName]:
        """Return earlier news that are another stream's by the rules of their commit time, each once.

        An event of an SQL feed has no commit time before it has its position.
        """

    async def positions(self) -> Sequence[Position]:
        """Return the relay's position in each partition."""

    async def obstacles(self) -> Sequence[Finding]:
        """Return the findings that keep the relay from reading the outbox.

        One is the lock of a host that was killed.
        """

    async def next_pages(self, limit: int, /) -> Sequence[NextPage]:
        """Return the relay's next page of each partition, of at most `limit` documents, or none.

        Gives no positions.
        """

    async def partition_of(self, partition_key: str, /) -> str | None:
        """Return the name of the position under which a key is now, or None if there is none, or it is unknown."""

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        """Return the last events of a key in the order of the feed, oldest first.

        The flag is True if there are older ones.
        """

    async def data(self, partition_key: str, ids: Collection[str], /) -> Mapping[str, str]:
        """Return the data of these events, as JSON text; events that the outbox no longer has are missing."""

    async def identity(self) -> str:
        """Return an identity that another outbox of the same name does not have, such as a recreated container."""

    async def in_range(self, chosen: Range, /) -> Reading:
        """Return the events of a range. Reading them gives positions to events of an SQL feed that have none."""

    def event_of(self, document: SourceDocument, /) -> Event | Rejected:
        """Return the event of a document, or why it cannot be published."""

    async def restored(self, document: SourceDocument, /) -> SourceDocument | None:
        """Return the current document of an event of which quarantine has the key alone.

        It is None if there is none.

        Its row did not exist when the relay came to it, and may be there again: of a partition that was attached
        again, or of a backup.
        """

    def document_of(self, stored: StoredDocument, place: Place | None = None, /) -> SourceDocument:
        """Return a document, or a row by the names of its columns, as the rules of relay.toml map it now.

        Args:
            stored: As the outbox or the quarantine has it.
            place: The place of a row in its feed, where that is known.
        """

    async def current(self, partition_key: str, identifier: str, /) -> SourceDocument | None:
        """Return the current document of an event, without its place in the feed, or None if there is none."""

    async def find(self, partition_key: str, identifier: str, /) -> Found | None:
        """Find an event by its key and id; return None if there is none."""

    async def passed(self, document: SourceDocument, /) -> bool:
        """Return True if the relay has passed a document that `in_range` gave, or that is in quarantine.

        False also if that is unknown.

        The checkpoints are read once. They only advance, so an old reading is on the safe side.
        """

    async def passed_behind(self, event: Event, /) -> Collection[str]:
        """Return the ids of the events of the same key behind this one that the relay has passed.

        None of them if the event's document has no place.
        """

    async def close(self) -> None:
        """Close every connection."""


class Canary(Protocol):
    """An outbox as a smoke test writes to it."""

    async def write(self, document: dict[str, Any], /) -> SourceDocument:
        """Commit an event in the outbox's layout; returns its document as the relay reads it.

        Raises:
            ServiceError: It was not committed.
        """

    async def remove(self, document: dict[str, Any], /) -> str | None:
        """Delete an event, within CLEAN_UP_S; returns its remains, None if there are none."""


CLEAN_UP_S = 10.0
"""Maximum seconds of the clean-up after each event of a smoke test, so that Ctrl-C ends the command."""


def id_name(identifier: str) -> str:
    """Return an id; one that is too long to show is shortened, with a digest at its end."""
    return _name(identifier, _ID)


def key_name(partition_key: str) -> str:
    """Return a partition key; one that is too long to show is shortened, with a digest at its end."""
    return _name(partition_key, _KEY)


def cut_text(text: str, most: int) -> str:
    """Return a text of at most this many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _name(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{cut_text(text, most - len(digest))}{digest}"


def _text(value: object, most: int) -> str | None:
    return cut_text(value, most) if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if type(value) is int and -_LARGEST <= value < _LARGEST else None
