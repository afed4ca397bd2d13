"""Parks keys in any SQL database. Each operation is one transaction, and locks the row of its key first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

from outbox_relay.inbox.errors import DeadLetter, NotStorable
from outbox_relay.inbox.parking import (
    ONLY_PLACE,
    Cause,
    Claim,
    ClaimLost,
    Kept,
    NotReleased,
    ParkedKey,
    ParkedMessage,
    decode,
    encode,
    position_among,
    time_text,
)
from outbox_relay.inbox.stores.port import Identity
from outbox_relay.inbox.stores.sql.dialects import Dialect, Operation, Statement, value
from outbox_relay.inbox.stores.sql.recording import Recording

_TRIES = 100
# Released keys that are looked at in one call of `claim`.
_CANDIDATES = 20

_PLACE = 'consumer = ? and topic = ? and "key" = ?'
_ONE = "position = ? and sequence_number = ?"
_NUMBER = " and sequence_number = ?"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Place:
    """A key, as the columns of its rows hold it."""

    columns: tuple[Any, Any, Any]
    topic: str
    key: str


class Parked:
    """The operations of `Parking`.

    Args:
        recording: Those of the consumer's handled messages.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._dialect: Dialect = recording.dialect
        self._keys, self._messages = (
            self._dialect.table("parked_keys"),
            self._dialect.table("parked_messages"),
        )

    def is_parked(self, topic: str, key: str) -> Operation[bool]:
        found = yield Statement(f"select count(*) from {self._keys} where {_PLACE}", self._at(topic, key).columns)
        return bool(found.rows[0][0])

    def park(self, message: ParkedMessage, cause: Cause) -> Operation[Kept]:
        place = self._at(message.topic, message.key)
        is_new = yield from self._lock_or_create(place, cause)
        if (yield from self._is_handled(message)):
            if is_new:
                yield self._unpark(place)
            return Kept.HANDLED
        return (yield from self._add(place, message))

    def set_aside(self, message: ParkedMessage) -> Operation[Kept]:
        place = self._at(message.topic, message.key)
        if not (yield from self._lock(place)):
            return Kept.NOT_PARKED
        if (yield from self._is_handled(message)):
            return Kept.HANDLED
        return (yield from self._add(place, message))

    def claim(self, topic: str, lasts: timedelta) -> Operation[Claim | None]:
        now, until = self._dialect.after(0), self._dialect.after(lasts.total_seconds())
        is_free = f"released = 1 and (until is null or until <= {now.sql})"
        found = yield Statement(
            f'select "key" from {self._keys} where consumer = ? and topic = ? and {is_free} order by since, "key"'
            f"{self._dialect.at_most(_CANDIDATES)}",
            (self._recording.consumer, self._dialect.text(topic, "topic"), *now.parameters),
        )
        for (column,) in found.rows:
            place = self._at(topic, self._dialect.string(column) or "")
            token = uuid4().hex
            # It is compared again: another process may have claimed it meanwhile.
            taken = yield Statement(
                f"update {self._keys} set token = ?, until = {until.sql} where {_PLACE} and {is_free}",
                (token, *until.parameters, *place.columns, *now.parameters),
            )
            if taken.changed:
                return Claim(topic, place.key, token)
        return None

    def renew(self, claim: Claim, lasts: timedelta) -> Operation[bool]:
        until, place = self._dialect.after(lasts.total_seconds()), self._at(claim.topic, claim.key)
        renewed = yield Statement(
            f"update {self._keys} set until = {until.sql} where {_PLACE} and token = ?",
            (*until.parameters, *place.columns, claim.token),
        )
        return bool(renewed.changed)

    def next(self, claim: Claim, done: ParkedMessage | None) -> Operation[ParkedMessage | None]:
        place = yield from self._lock_claimed(claim)
        yield from self._remove(place, done)
        for first in (yield from self._read(place, None, 1)):
            yield Statement(
                f"update {self._messages} set attempts = attempts + 1 where {_PLACE} and {_ONE}",
                (*place.columns, *first.order),
            )
            return replace(first, attempts=first.attempts + 1)
        yield self._unpark(place)
        return None

    def give_back(self, claim: Claim, done: ParkedMessage | None) -> Operation[None]:
        place = yield from self._lock_claimed(claim)
        yield from self._remove(place, done)
        if (yield from self._is_empty(place)):
            yield self._unpark(place)
        else:
            yield Statement(f"update {self._keys} set token = null, until = null where {_PLACE}", place.columns)

    def fail(self, claim: Claim, cause: Cause) -> Operation[None]:
        place, since = (yield from self._lock_claimed(claim)), self._dialect.after(0)
        yield Statement(
            f"update {self._keys} set released = 0, token = null, until = null,"
            f" reason = ?, error = ?, detail = ?, since = {since.sql} where {_PLACE}",
            (*_texts(cause), *since.parameters, *place.columns),
        )

    def keys(self) -> Operation[list[ParkedKey]]:
        found = yield Statement(
            f'select topic, "key", {self._dialect.read_time("since")}, reason, error, detail, released,'
            f" (select count(*) from {self._messages} as message where message.consumer = parked.consumer"
            ' and message.topic = parked.topic and message."key" = parked."key")'
            f' from {self._keys} as parked where consumer = ? order by topic, "key"',
            (self._recording.consumer,),
        )
        string = self._dialect.string
        return [
            ParkedKey(
                string(topic) or "", string(key) or "", _moment(since), Cause(*cause), messages, bool(released)
            )
            for topic, key, since, *cause, released, messages in found.rows
        ]

    def messages(
        self, topic: str, key: str, after: ParkedMessage | None, limit: int
    ) -> Operation[list[ParkedMessage]]:
        return (yield from self._read(self._at(topic, key), after, limit))

    def has_records(self) -> Operation[bool]:
        for table in ("handled", "progress", "parked_keys"):
            found = yield Statement(
                f"select count(*) from (select consumer from {self._dialect.table(table)} where consumer = ?"
                f" order by consumer{self._dialect.at_most(1)}) as one",
                (self._recording.consumer,),
            )
            if found.rows[0][0]:
                return True
        return False

    def release(self, topic: str, key: str) -> Operation[bool]:
        place = self._at(topic, key)
        if not (yield from self._lock(place)):
            return False
        for first in (yield from self._read(place, None, 1)):
            if first.message is None:
                raise NotReleased(first)
        released = yield Statement(
            f"update {self._keys} set released = 1 where {_PLACE} and released = 0", place.columns
        )
        if released.changed:
            yield Statement(
                f"update {self._messages} set attempts = 0 where {_PLACE} and attempts <> 0", place.columns
            )
        return True

    def discard(self, topic: str, key: str, messages: Sequence[ParkedMessage]) -> Operation[list[ParkedMessage]]:
        place = self._at(topic, key)
        if not (yield from self._lock(place)):
            return []
        discarded = []
        for each in messages:
            for stored in (yield from self._select(place, f" and {_ONE}", each.order, None)):
                if each.is_record_of(stored):
                    if stored.id:
                        yield from self._recording.record(Identity(topic, key, stored.id), key, None)
                    yield from self._remove(place, stored)
                    discarded.append(stored)
        if (yield from self._is_empty(place)):
            yield self._unpark(place)
        return discarded

    # Parts.

    def _at(self, topic: str, key: str) -> _Place:
        """Return the place of a key. Raises DeadLetter if the database cannot hold the key."""
        text = self._dialect.text
        return _Place((self._recording.consumer, text(topic, "topic"), text(key, "key")), topic, key)

    def _id(self, identifier: str) -> tuple[str, Any]:
        """Return an id and its column; empty if the database cannot hold it, so that it was never handled."""
        try:
            return identifier, self._dialect.text(identifier, "id")
        except (DeadLetter, UnicodeEncodeError):
            return "", self._dialect.text("", "id")

    def _lock(self, place: _Place) -> Operation[bool]:
        """Lock the row of a key until the transaction ends; returns whether there is one.

        It is written, not only locked: of two transactions at REPEATABLE READ, PostgreSQL refuses the second with
        a serialization failure then. After a lock alone it would go on, and not see the messages of the first:
        https://www.postgresql.org/docs/current/transaction-iso.html#XACT-REPEATABLE-READ.
        """
        locked = yield Statement(f"update {self._keys} set released = released where {_PLACE}", place.columns)
        return bool(locked.changed)

    def _lock_or_create(self, place: _Place, cause: Cause) -> Operation[bool]:
        """Lock the row of a key; returns whether it was created for that."""
        reason, error, detail = _texts(cause)
        consumer, topic, key = place.columns
        row = {
            "consumer": value(consumer),
            "topic": value(topic),
            "key": value(key),
            "since": self._dialect.after(0),
            "reason": value(reason),
            "error": value(error),
            "detail": value(detail),
            "released": value(0),
        }
        for _ in range(_TRIES):
            if (yield from self._lock(place)):
                return False
            if (yield from self._dialect.insert_new("parked_keys", row)):
                return True
        raise LookupError("Others park and release the key all the time.")

    def _lock_claimed(self, claim: Claim) -> Operation[_Place]:
        """Lock the row of a claimed key, as `_lock`. Raises ClaimLost if the claim, or the row, is gone."""
        place = self._at(claim.topic, claim.key)
        locked = yield Statement(
            f"update {self._keys} set released = released where {_PLACE} and token = ?",
            (*place.columns, claim.token),
        )
        if not locked.changed:
            raise ClaimLost
        return place

    def _is_handled(self, message: ParkedMessage) -> Operation[bool]:
        identifier, _ = self._id(message.id)
        if not identifier:
            return False
        return (yield from self._recording.is_handled(Identity(message.topic, message.key, identifier)))

    def _is_there(self, place: _Place, message: ParkedMessage) -> Operation[bool]:
        """Return True if the message is stored. Raises NotStorable if its place alone is."""
        known = replace(message, id=self._id(message.id)[0])
        same = yield from self._select(place, _NUMBER, (message.number,), None, content="null")
        stored = next((each for each in same if known.is_repetition_of(each)), None)
        if stored is None or message.message is None:
            return stored is not None
        if (yield from self._select(place, f" and {_ONE} and message is null", stored.order, 1, content="null")):
            raise NotStorable(ONLY_PLACE)
        return True

    def _position(self, place: _Place, message: ParkedMessage) -> Operation[int]:
        """Return the position of `position_among`, from few of the messages of the key."""
        last = f" and position = (select max(position) from {self._messages} where {_PLACE})"
        stored = yield from self._select(place, last, place.columns, 1, content="null")
        stored += yield from self._select(place, _NUMBER, (message.number,), None, content="null")
        if (time := time_text(message.enqueued_at)) is not None:
            behind = " and sequence_number > ? and subscription = ? and enqueued_at >= ?"
            subscription = self._dialect.text(message.subscription, "subscription")
            values = message.number, subscription, time
            stored += yield from self._select(place, behind, values, 1, content="null")
        return position_among(stored, message)

    def _add(self, place: _Place, message: ParkedMessage) -> Operation[Kept]:
        if (yield from self._is_there(place, message)):
            return Kept.ASIDE
        consumer, topic, key = place.columns
        row = {
            "consumer": value(consumer),
            "topic": value(topic),
            "key": value(key),
            "position": value((yield from self._position(place, message))),
            "subscription": value(self._dialect.text(message.subscription, "subscription")),
            "sequence_number": value(message.number),
            "id": value(self._id(message.id)[1]),
            "enqueued_at": value(time_text(message.enqueued_at)),
            "message": value(None if message.message is None else encode(message.message)),
            "attempts": value(0),
        }
        yield from self._dialect.insert_new("parked_messages", row)
        return Kept.ASIDE

    def _read(self, place: _Place, after: ParkedMessage | None, limit: int) -> Operation[list[ParkedMessage]]:
        if after is None:
            return (yield from self._select(place, "", (), limit))
        position, number = after.order
        behind = " and (position > ? or position = ? and sequence_number > ?)"
        return (yield from self._select(place, behind, (position, position, number), limit))

    def _select(
        self,
        place: _Place,
        condition: str,
        parameters: Sequence[Any],
        limit: int | None,
        *,
        content: str = "message",
    ) -> Operation[list[ParkedMessage]]:
        found = yield Statement(
            f"select position, subscription, sequence_number, id, enqueued_at, {content}, attempts"
            f" from {self._messages} where {_PLACE}{condition} order by position, sequence_number"
            f"{'' if limit is None else self._dialect.at_most(limit)}",
            (*place.columns, *parameters),
        )
        return [self._parked(place, *row) for row in found.rows]

    def _parked(self, place: _Place, *row: Any) -> ParkedMessage:
        position, subscription, number, identifier, enqueued_at, text, attempts = row
        string = self._dialect.string
        return ParkedMessage(
            place.topic,
            place.key,
            string(identifier) or "",
            number,
            None if text is None else decode(text),
            attempts,
            string(subscription) or "",
            None if enqueued_at is None else datetime.fromisoformat(enqueued_at),
            position,
        )

    def _remove(self, place: _Place, message: ParkedMessage | None) -> Operation[None]:
        if message is not None:
            yield Statement(
                f"delete from {self._messages} where {_PLACE} and {_ONE}", (*place.columns, *message.order)
            )

    def _is_empty(self, place: _Place) -> Operation[bool]:
        found = yield Statement(
            f"select position from {self._messages} where {_PLACE} order by position{self._dialect.at_most(1)}",
            place.columns,
        )
        return not found.rows

    def _unpark(self, place: _Place) -> Statement:
        return Statement(f"delete from {self._keys} where {_PLACE}", place.columns)


class SqlParking(ABC):
    """A store that parks keys in its database. See `Parking`."""

    _recording: Recording

    _unstorable: tuple[type[Exception], ...] = (UnicodeEncodeError,)
    """The exceptions that the driver raises for a value that the database cannot hold."""

    @abstractmethod
    async def transact(self, operation: Operation[ResultT]) -> ResultT:
        """Run an operation in a transaction of its own."""

    async def is_parked(self, topic: str, key: str) -> bool:
        """See `Parking.is_parked`."""
        return await self._first_storable(self._parked.is_parked(topic, key))

    async def park(self, message: ParkedMessage, cause: Cause) -> Kept:
        """See `Parking.park`."""
        parked, plain, nameless = self._parked, _in_ascii(cause), replace(message, id="")
        return await self._first_storable(
            parked.park(message, cause), parked.park(message, plain), parked.park(nameless, plain)
        )

    async def set_aside(self, message: ParkedMessage) -> Kept:
        """See `Parking.set_aside`."""
        parked, nameless = self._parked, replace(message, id="")
        return await self._first_storable(parked.set_aside(message), parked.set_aside(nameless))

    async def claim(self, topic: str, lasts: timedelta) -> Claim | None:
        """See `Parking.claim`."""
        return await self.transact(self._parked.claim(topic, lasts))

    async def renew(self, claim: Claim, lasts: timedelta) -> bool:
        """See `Parking.renew`."""
        return await self.transact(self._parked.renew(claim, lasts))

    async def next(self, claim: Claim, done: ParkedMessage | None = None) -> ParkedMessage | None:
        """See `Parking.next`."""
        return await self.transact(self._parked.next(claim, done))

    async def give_back(self, claim: Claim, done: ParkedMessage | None = None) -> None:
        """See `Parking.give_back`."""
        await self.transact(self._parked.give_back(claim, done))

    async def fail(self, claim: Claim, cause: Cause) -> None:
        """See `Parking.fail`."""
        parked, plain = self._parked, _in_ascii(cause)
        await self._first_storable(parked.fail(claim, cause), parked.fail(claim, plain))

    async def keys(self) -> list[ParkedKey]:
        """See `Parking.keys`."""
        return await self.transact(self._parked.keys())

    async def messages(
        self, topic: str, key: str, *, after: ParkedMessage | None = None, limit: int = 1000
    ) -> list[ParkedMessage]:
        """See `Parking.messages`."""
        return await self.transact(self._parked.messages(topic, key, after, limit))

    async def release(self, topic: str, key: str) -> bool:
        """See `Parking.release`."""
        return await self.transact(self._parked.release(topic, key))

    async def discard(self, topic: str, key: str, messages: Sequence[ParkedMessage]) -> Sequence[ParkedMessage]:
        """See `Parking.discard`."""
        return await self.transact(self._parked.discard(topic, key, messages))

    async def has_records(self) -> bool:
        """Return True if the consumer has handled or parked anything that is recorded."""
        return await self.transact(self._parked.has_records())

    @property
    def _parked(self) -> Parked:
        return Parked(self._recording)

    async def _first_storable(self, *operations: Operation[ResultT]) -> ResultT:
        """Run the first of these operations whose texts the database's encoding has.

        A message whose id the encoding lacks was never handled, so it is stored without the id.

        Raises:
            DeadLetter: It has those of none: `invalid-identity`.
        """
        for operation in operations:
            try:
                return await self.transact(operation)
            except self._unstorable as error:
                # Not the error's text: it may quote the value.
                refusal = error
        raise DeadLetter("invalid-identity", "The database's encoding lacks a character of the key.") from refusal


def _in_ascii(cause: Cause) -> Cause:
    """Return the cause with escapes such as `\\u0141`, for a database whose encoding lacks a character."""
    reason, error, detail = (
        text.encode("ascii", "backslashreplace").decode() for text in (cause.reason, cause.error, cause.detail)
    )
    return Cause(reason, error, detail)


def _texts(cause: Cause) -> tuple[str, str, str]:
    """Return the texts of a cause, without U+0000, which PostgreSQL cannot hold."""
    reason, error, detail = (
        text.encode(errors="replace").decode().replace("\0", "\ufffd")
        for text in (cause.reason, cause.error, cause.detail)
    )
    return reason, error, detail


def _moment(column: Any) -> datetime:
    """Return the time that `Dialect.read_time` reads; the nearest one where Python has none."""
    if isinstance(column, datetime):
        return column.replace(tzinfo=UTC)
    try:
        return datetime.fromtimestamp(column, UTC)
    except (OverflowError, ValueError, OSError):
        return (datetime.min if column < 0 else datetime.max).replace(tzinfo=UTC)
