"""The records of a parked key, and the interface of stores that park keys. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Protocol
from uuid import UUID

from outbox_relay.inbox.errors import DeadLetter, NotStorable, sendable
from outbox_relay.inbox.messages import Message

UNREADABLE = "unreadable"
FAILED = "handler-failed"
EXHAUSTED = "deliveries-exhausted"
NOT_STORABLE = "not-storable"

ONLY_PLACE = "Only its place is kept: it could not be stored, or not be read, when it was delivered before."
"""The text of NotStorable for a message whose place is stored already."""


class Kept(Enum):
    """The outcome for a message that was to be set aside or parked.

    Attributes:
        ASIDE: It is in the store, behind the messages of its key that came before. It may be completed.
        HANDLED: It was handled or discarded before. It may be completed.
        NOT_PARKED: Its key is not parked, or no longer: it is to be handled.
    """

    ASIDE = "aside"
    HANDLED = "handled"
    NOT_PARKED = "not parked"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a key is parked.

    Attributes:
        reason: That of the `DeadLetter`; `unreadable`, `handler-failed` (as often as `Options.attempts` says),
            `deliveries-exhausted` (its deliveries ended without an answer, as when the process is killed each
            time), or `not-storable` (as `unreadable`: it is in the dead-letter queue).
        error: The type of the exception; "" if there was none.
        detail: The text of the exception, which may contain personal values: not for logs and lists.
    """

    reason: str
    error: str = ""
    detail: str = ""

    @classmethod
    def of(cls, error: Exception) -> Cause:
        """Return the cause that a handler's exception amounts to."""
        name = type(error).__name__
        if isinstance(error, DeadLetter):
            return cls(error.reason, name, error.description)
        return cls(FAILED, name, sendable(str(error)))


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message of a parked key.

    Attributes:
        topic, key, id: As of a `Message`. The id is "" if it could not be read.
        number: The broker's number. It counts within a subscription, and from 1 again in one that is made anew.
        message: The message; None if it could not be read, or not be stored. It is in the dead-letter queue then,
            and this is its place in the order of its key.
        attempts: How often it was handed to the handler since the key was released.
        subscription, enqueued_at: As of a `Message`.
        position: The place in the order of its key, which the store gives it. Those that have the same position
            are in the order of their numbers.
    """

    topic: str
    key: str
    id: str
    number: int
    message: Message | None
    attempts: int = 0
    subscription: str = ""
    enqueued_at: datetime | None = None
    position: int = field(default=0, compare=False)

    @classmethod
    def of(cls, message: Message) -> ParkedMessage:
        """Return the record of a message."""
        return cls(
            message.topic,
            message.key,
            message.id,
            message.sequence_number,
            message,
            subscription=message.subscription,
            enqueued_at=message.enqueued_at,
        )

    @property
    def order(self) -> tuple[int, int]:
        """The place among the stored messages of the key, of which no other one has the same."""
        return self.position, self.number

    def is_record_of(self, stored: ParkedMessage) -> bool:
        """Return True if this was read of the stored message, and not of another that has its place now."""
        mine, its = ((each.order, each.subscription, each.id, each.enqueued_at) for each in (self, stored))
        return mine == its

    def is_repetition_of(self, stored: ParkedMessage) -> bool:
        """Return True if a stored message of the key is this one, delivered before.

        A record of a version that knew no subscription may be of any, and one without a time of any time.
        """
        return (
            (stored.number, stored.id) == (self.number, self.id)
            and stored.subscription in ("", self.subscription)
            and (None in (stored.enqueued_at, self.enqueued_at) or stored.enqueued_at == self.enqueued_at)
        )


def position_among(stored: Iterable[ParkedMessage], message: ParkedMessage) -> int:
    """Return the position that a message gets behind, or between, the stored ones of its key.

    It follows all of them. But a receiver that has lost its session may have stored messages that come after it:
    they have a higher number of the same subscription, and were not enqueued before it. It takes the position of
    the first of those. A subscription that was made anew repeats numbers, with later times.

    Args:
        stored: All stored messages of the key, none of which is a repetition of it.
        message: The message.
    """
    last, behind = 0, []
    is_renumbered = False
    for each in stored:
        last = max(last, each.position)
        if each.subscription == message.subscription:
            is_renumbered |= each.number == message.number
            if each.number > message.number and message.enqueued_at and each.enqueued_at:
                behind += [each.position] if each.enqueued_at >= message.enqueued_at else []
    return min(behind) if behind and not is_renumbered else last + 1


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """A key whose messages are set aside.

    Attributes:
        topic, key: As of a `Message`.
        since: When it was parked.
        cause: Why.
        messages: Number of its messages that are set aside.
        is_released: Whether an operator has released it: its messages are being handed to the handler, or will be.
    """

    topic: str
    key: str
    since: datetime
    cause: Cause
    messages: int
    is_released: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to hand over the messages of a released key, for a limited time.

    Attributes:
        topic, key: As of a `Message`.
        token: Tells this claim from every other.
    """

    topic: str
    key: str
    token: str


def time_text(moment: datetime | None) -> str | None:
    """Return a time as text in UTC, with microseconds, so that texts are in the order of the times."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


_MARK = "$"


def encode(message: Message) -> str:
    """Return a message as JSON text in ASCII.

    What JSON lacks is an object with one name that begins with `$`: `$bytes` (base64), `$uuid`, `$decimal`,
    `$float` (`nan`, `inf`, `-inf`), `$time` (ISO 8601), and `$map`, a list of pairs.

    Raises:
        NotStorable: It has a value of another type.
    """
    return json.dumps({each.name: _tagged(getattr(message, each.name)) for each in fields(message)})


def decode(text: str) -> Message:
    """Return the message that `encode` was given.

    Raises:
        ValueError, KeyError, TypeError: It is not such a text.
    """
    values = {name: _plain(value) for name, value in json.loads(text).items()}
    known = {each.name for each in fields(Message)}
    return Message(**{name: value for name, value in values.items() if name in known})


def _tagged(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            # Of a number that is not finite, `value - value` is not a number.
            return value if value - value == 0 else {"$float": str(value)}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case UUID():
            return {"$uuid": str(value)}
        case Decimal():
            return {"$decimal": str(value)}
        case datetime():
            return {"$time": value.isoformat()}
        case list() | tuple():
            return [_tagged(each) for each in value]
        case dict():
            if all(isinstance(name, str) and not name.startswith(_MARK) for name in value):
                return {name: _tagged(each) for name, each in value.items()}
            return {"$map": [[_tagged(name), _tagged(each)] for name, each in value.items()]}
    raise NotStorable(f"The message has a value of the type {type(value).__name__}, which cannot be stored.")


def _plain(value: Any) -> Any:
    match value:
        case list():
            return [_plain(each) for each in value]
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$uuid": str(text)}:
            return UUID(text)
        case {"$decimal": str(text)}:
            return Decimal(text)
        case {"$float": str(text)}:
            return float(text)
        case {"$time": str(text)}:
            return datetime.fromisoformat(text)
        case {"$map": list(pairs)}:
            return {_plain(name): _plain(each) for name, each in pairs}
        case dict():
            return {name: _plain(each) for name, each in value.items()}
    return value


class Parking(Protocol):
    """Keeps the messages of parked keys. Each method is a transaction of its own, and may be repeated.

    A key has a row while it is parked, and at least one message. Everything that reads or changes its messages
    locks that row, so that none is left behind in a key that is not parked.

    A message is identified by its topic, subscription, key, id and number (`ParkedMessage.is_repetition_of`).
    Messages are in the order in which they came, those of a subscription in that of their numbers
    (`position_among`).

    A store belongs to one consumer. Other processes see what is written when the method returns.
    """

    async def is_parked(self, topic: str, key: str) -> bool:
        """Return True if messages of the key are set aside."""

    async def park(self, message: ParkedMessage, cause: Cause) -> Kept:
        """Set a message aside, and park its key if it is not parked.

        The first message of a parked key is what parked it. One that is there already stays as it is, as does the
        cause of a key that is parked already.

        Returns:
            ASIDE or HANDLED.

        Raises:
            DeadLetter: The store cannot hold its key.
            NotStorable: The message is too large, or has a value that the store cannot hold, or its place alone is
                stored. Store its place then.
        """

    async def set_aside(self, message: ParkedMessage) -> Kept:
        """Set a message aside behind the others of its key, if its key is parked.

        Raises:
            DeadLetter, NotStorable: As `park`.
        """

    # Released keys: what receivers do.

    async def claim(self, topic: str, lasts: timedelta) -> Claim | None:
        """Claim a released key of a topic that nobody has claimed; None if there is none."""

    async def renew(self, claim: Claim, lasts: timedelta) -> bool:
        """Extend a claim from now; False if it is lost."""

    async def next(self, claim: Claim, done: ParkedMessage | None = None) -> ParkedMessage | None:
        """Return the first message of a claimed key, after counting up its attempts.

        Args:
            claim: The claim.
            done: A message that was handled, as `next` returned it. It is removed first.

        Returns:
            None if none was left: the key is no longer parked.

        Raises:
            ClaimLost: The claim was lost, or the key is no longer parked.
        """

    async def give_back(self, claim: Claim, done: ParkedMessage | None = None) -> None:
        """Remove a message that was handled, as `next`, and let others claim the key at once.

        Raises:
            ClaimLost: As `next`.
        """

    async def fail(self, claim: Claim, cause: Cause) -> None:
        """Park a claimed key again, because of its first message.

        Raises:
            ClaimLost: As `next`.
        """

    # What operators do.

    async def keys(self) -> list[ParkedKey]:
        """Return the parked keys, sorted by topic and key."""

    async def messages(
        self, topic: str, key: str, *, after: ParkedMessage | None = None, limit: int = 1000
    ) -> list[ParkedMessage]:
        """Return the messages of a parked key in their order, from the one behind `after` on."""

    async def release(self, topic: str, key: str) -> bool:
        """Hand the messages of a key to the handler; return False if it is not parked.

        Raises:
            NotReleased: Its first message is only a place.
        """

    async def discard(self, topic: str, key: str, messages: Sequence[ParkedMessage]) -> Sequence[ParkedMessage]:
        """Remove these messages of a parked key, and count them as handled.

        What another delivery brings again is skipped by `once`. With its last message, the key is no longer
        parked. A message that is being handled now may have its effect.

        Args:
            topic, key: As of a `Message`.
            messages: As `messages` returned them.

        Returns:
            Those that were removed: the others were handled or discarded meanwhile.
        """


class ClaimLost(Exception):
    """Another process has claimed the key, or it is no longer parked."""


class NotReleased(Exception):
    """The key was not released, because its first message is in the dead-letter queue. Discard its place first."""

    def __init__(self, first: ParkedMessage) -> None:
        super().__init__(
            f"The first message of the key {first.key!r}, {first.id!r} (number {first.number}), could not be read "
            "or not be stored, and is in the dead-letter queue. Handle it there, and discard its place here."
        )
