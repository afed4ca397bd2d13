"""The interface of stores and their answers.

All stores find missing and late events by `advance`, and record in `Blocks` which task is inside which block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from outbox_relay.inbox.errors import DeadLetter
from outbox_relay.inbox.messages import Message, note_closed, note_missing

MAX_SEQUENCE = 2**63 - 1
"""The largest number that databases store as an integer. AMQP also has numbers up to 2^64 - 1."""

_NOTHING = range(0)


@dataclass(frozen=True, slots=True)
class Gap:
    """Events of an entity that were not handled, although later ones were: `first` to `last`, both included.

    Attributes:
        entity: The entity that the numbers belong to: `message.key`, or the `entity` passed to `once`.
        first, last: The numbers.
        key, topic: Those of the entity's messages. None if none were handled since the store began to record them.
    """

    entity: str
    first: int
    last: int
    key: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of an event. An id is not enough: in a partitioned topic, two keys may have the same id."""

    topic: str
    key: str
    id: str

    @classmethod
    def of(cls, message: Message) -> Identity:
        """Return the identity of a message that a store can record.

        Raises:
            DeadLetter: It has no id (`no-message-id`), a sequence beyond 63 bits (`invalid-sequence`), or half a
                surrogate pair in its id, key or topic (`invalid-identity`).
        """
        if not message.id:
            raise DeadLetter("no-message-id", "Without a message id, a repetition cannot be recognised.")
        if message.sequence is not None and not -MAX_SEQUENCE <= message.sequence <= MAX_SEQUENCE:
            raise DeadLetter("invalid-sequence", "The sequence is beyond ±(2^63 - 1).")
        for what, text in (("id", message.id), ("key", message.key), ("topic", message.topic)):
            _check(text, what)
        return cls(message.topic, message.key, message.id)


def entity_of(message: Message, entity: str | None) -> str:
    """Return the entity that a message's number belongs to; by default its key.

    Raises:
        DeadLetter: The entity has half a surrogate pair: `invalid-identity`.
    """
    if entity is None:
        return message.key
    _check(entity, "entity")
    return entity


def _check(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Not the error's text: it quotes the value.
        raise DeadLetter("invalid-identity", f"The {what} contains half a surrogate pair.") from error


class Store(Protocol):
    """Records handled messages. A store belongs to one consumer; two would skip each other's messages."""

    def once(self, message: Message, *, entity: str | None = None) -> AbstractAsyncContextManager[Arrival]:
        """Enter a block that handles a message: `async with store.once(message) as arrival`.

        The message counts as handled if the block ends without an exception, and as never seen if it raises. Only
        one block runs at a time, so the second of two deliveries of a message is recognised. Two messages are the
        same if their topic, key and id are.

        Args:
            message: The message.
            entity: The entity that its `sequence` belongs to; by default the key. Writers number events
                within an entity: give its id if several entities share a key.

        Raises:
            DeadLetter: The message cannot be recorded: `no-message-id`, `invalid-sequence`, `invalid-identity`.
            RuntimeError: The current task is inside a block already.
        """

    async def gaps(self) -> list[Gap]:
        """Return missing numbers, sorted by entity, key, topic and number. Late events are no longer missing."""

    async def forget(self, older_than: timedelta) -> int:
        """Delete records of messages handled longer ago, and return how many. Progress and gaps are kept.

        Keep records for longer than events may be repeated: longer than the duplicate detection window, and as far
        back as operators replay.
        """


ConnectionT = TypeVar("ConnectionT")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A store's answer about a message.

    Attributes:
        first: False if this message was handled before: skip its effect.
        missing: The numbers of events that should have come before this one and did not. They are in quarantine,
            dead-lettered, or expired. Each is reported once, by the first event after it.
        late: Whether later events of the entity were handled before this one.
        was_missing: Whether this one was reported as missing before: it closes a gap, or makes it smaller.
    """

    first: bool
    missing: range = _NOTHING
    late: bool = False
    was_missing: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The changes that an event makes to the progress of its entity: all that a store writes, whatever the gaps.

    Attributes:
        arrival: The value for the handler.
        last: The highest handled number.
        closed: The gap that contained the number and no longer exists.
        opened: New gaps.
    """

    arrival: Arrival
    last: int
    closed: range | None = None
    opened: tuple[range, ...] = ()


def advance(last: int | None, gap: range | None, sequence: int) -> Step:
    """Handle the event with a number.

    Events before the first one do not count as missing: a subscription starts when it is created.

    Args:
        last: The highest handled number of the entity; None if no event was handled.
        gap: The missing numbers around `sequence`; None if it is not missing.
        sequence: The event's number.
    """
    if last is None:
        return Step(Arrival(first=True), sequence)
    if sequence <= last:
        if gap is None:
            return Step(Arrival(first=True, late=True), last)
        note_closed(sequence)
        late = Arrival(first=True, late=True, was_missing=True)
        parts = (range(gap.start, sequence), range(sequence + 1, gap.stop))
        return Step(late, last, gap, tuple(part for part in parts if part))
    missing = range(last + 1, sequence)
    note_missing(missing)
    return Step(Arrival(first=True, missing=missing), sequence, opened=(missing,) if missing else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalIn(Arrival, Generic[ConnectionT]):
    """A store's answer about a message, with the transaction that the block is. It equals the same `Arrival`.

    Attributes:
        connection: What the handler writes through is committed with the message, or not at all.
    """

    connection: ConnectionT = field(repr=False)

    @classmethod
    def of(cls, arrival: Arrival, connection: ConnectionT) -> ArrivalIn[ConnectionT]:
        """Return the same arrival with a connection."""
        return cls(**{each.name: getattr(arrival, each.name) for each in _ANSWER}, connection=connection)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Arrival):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in _ANSWER)

    def __hash__(self) -> int:
        return Arrival.__hash__(self)


_ANSWER = fields(Arrival)


class Block:
    """An open block.

    Attributes:
        connection: That of its transaction, as soon as it has one.
    """

    def __init__(self) -> None:
        self.connection: Any = None


# Tasks that a handler starts inside its block inherit it.
_entered: ContextVar[tuple[Block, ...]] = ContextVar("inbox_blocks", default=())


class Blocks:
    """The open blocks of a store."""

    def __init__(self) -> None:
        self._open: set[Block] = set()

    @property
    def are_open(self) -> bool:
        """True while any task has a block open."""
        return bool(self._open)

    @property
    def is_mine(self) -> bool:
        """True inside a block that the current task has opened."""
        return self.mine is not None

    @property
    def mine(self) -> Block | None:
        """The open block that the current task is inside."""
        return next((each for each in _entered.get() if each in self._open), None)

    def check(self) -> None:
        """Raise RuntimeError if the current task is inside an open block, and would wait for itself."""
        if self.is_mine:
            raise RuntimeError("This task is already inside a block of `once`: leave it first.")

    @contextmanager
    def enter(self) -> Iterator[Block]:
        """Open a block of the current task.

        Raises:
            RuntimeError: The current task is inside an open block, and would wait for itself.
        """
        self.check()
        block = Block()
        self._open.add(block)
        _entered.set((*_entered.get(), block))
        try:
            yield block
        finally:
            self._open.discard(block)
            _entered.set(tuple(each for each in _entered.get() if each is not block))


class Turn:
    """Lets one task at a time into a block."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._blocks = Blocks()

    @property
    def is_taken(self) -> bool:
        """True while any task has a block open."""
        return self._blocks.are_open

    @property
    def is_mine(self) -> bool:
        """True inside the open block if the current task has opened it."""
        return self._blocks.is_mine

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until no block is open, and open one.

        Raises:
            RuntimeError: The current task is inside the open block, and would wait for itself.
        """
        self._blocks.check()
        async with self._lock:
            with self._blocks.enter():
                yield
