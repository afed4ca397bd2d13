"""The safeguards of `inbox`, each taken out by replacing one function."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from outbox_relay.inbox import session
from outbox_relay.inbox.errors import DeadLetter
from outbox_relay.inbox.key_parker import KeyParker
from outbox_relay.inbox.lock import Lock
from outbox_relay.inbox.messages import Handler, Message, call
from outbox_relay.inbox.parking import Cause, Claim, ParkedMessage
from outbox_relay.inbox.received import read
from outbox_relay.inbox.session import Session
from outbox_relay.inbox.stores.port import Arrival, Identity, Step
from outbox_relay.inbox.stores.sql import recording
from outbox_relay.inbox.stores.sql.dialects import Operation, Statement
from outbox_relay.inbox.stores.sql.parking import _PLACE, Parked, _Place
from outbox_relay.inbox.stores.sqlite import SqliteConnection, SqliteStore

_settle = Session._settle
_next, _read = Parked.next, Parked._read


@asynccontextmanager
async def _without_transaction(self: SqliteConnection) -> AsyncIterator[None]:
    async with self._turn.take():
        yield


def _always_first(self: SqliteStore, *_: Any) -> Arrival:
    return Arrival(first=True)


async def _never_renew(self: Lock) -> None:
    await asyncio.sleep(1e9)


async def _whatever_the_lock(self: Lock, work: Coroutine[Any, Any, Any]) -> Any:
    return await work


async def _settle_first(self: Session, received: ServiceBusReceivedMessage) -> None:
    await self._receiver.complete_message(received)
    await call(self._handler, read(received, self._topic))


async def _go_on_after_failure(self: Session, received: ServiceBusReceivedMessage) -> None:
    await _settle(self, received)


def _no_gaps(last: int | None, gap: range | None, sequence: int) -> Step:
    return Step(Arrival(first=True), sequence if last is None else max(last, sequence))


async def _swallow_dead_letters(handler: Handler, message: Message) -> None:
    with contextlib.suppress(DeadLetter):
        await call(handler, message)


def _of_id_alone(message: Message) -> Identity:
    return Identity(message.topic, "", message.id)


async def _keep_session(self: Session) -> None:
    if self._lock is not None:
        await self._lock.stop()


async def _never_set_aside(self: KeyParker, parked: ParkedMessage) -> bool:
    return False


async def _never_park(self: KeyParker, parked: ParkedMessage, cause: Cause) -> None:
    pass


def _only_what_is_not_released(self: Parked, place: _Place) -> Operation[bool]:
    found = yield Statement(
        f"select released from {self._keys} where {_PLACE} and (released = 0 or token is not null)", place.columns
    )
    return bool(found.rows)


def _last_first(
    self: Parked, place: _Place, after: ParkedMessage | None, limit: int
) -> Operation[list[ParkedMessage]]:
    return (yield from _read(self, place, after, 1000))[::-1][:limit]


def _remove_beforehand(self: Parked, claim: Claim, done: ParkedMessage | None) -> Operation[ParkedMessage | None]:
    first = yield from _next(self, claim, done)
    yield from self._remove(self._at(claim.topic, claim.key), first)
    return first


def _unpark_at_once(self: Parked, claim: Claim, done: ParkedMessage | None) -> Operation[ParkedMessage | None]:
    first = yield from _next(self, claim, done)
    yield self._unpark(self._at(claim.topic, claim.key))
    return first


def _without_note(
    self: Parked, topic: str, key: str, messages: Sequence[ParkedMessage]
) -> Operation[list[ParkedMessage]]:
    place = self._at(topic, key)
    for each in messages:
        yield from self._remove(place, each)
    if (yield from self._is_empty(place)):
        yield self._unpark(place)
    return list(messages)


def _skip_on_failure(self: Parked, claim: Claim, cause: Cause) -> Operation[None]:
    for first in (yield from self._read(self._at(claim.topic, claim.key), None, 1)):
        yield from self.give_back(claim, first)


async def _leave_no_place(self: KeyParker, parked: ParkedMessage, unreadable: DeadLetter) -> None:
    pass


CONTROLS: dict[str, tuple[Any, str, Any, str]] = {
    "the note is in the effect's transaction": (SqliteConnection, "transaction", _without_transaction, "missing"),
    "what was handled is skipped": (SqliteStore, "_record", _always_first, "duplicated"),
    "the lock is renewed": (Lock, "_renew", _never_renew, "undisturbed"),
    "the handler ends with the lock": (Lock, "during", _whatever_the_lock, "handed over"),
    "settled after the effect": (Session, "_settle", _settle_first, "missing"),
    "nothing is handled behind a failed message": (Session, "_settle", _go_on_after_failure, "out_of_order"),
    "gaps are recorded": (recording, "advance", _no_gaps, "as missing"),
    "an event is known by its key, too": (Identity, "of", _of_id_alone, "missing"),
    "what nobody can handle is dead-lettered": (session, "call", _swallow_dead_letters, "dead letters"),
    "what follows a parked message is set aside": (KeyParker, "_take", _never_set_aside, "out_of_order"),
    "a message is kept before it is completed": (KeyParker, "_park", _never_park, "missing"),
    "a released key is parked until its last message": (Parked, "_lock", _only_what_is_not_released, "of_order"),
    "messages are handed over in order": (Parked, "_read", _last_first, "out_of_order"),
    "a message is removed after its handler": (Parked, "next", _remove_beforehand, "missing"),
    "a claimed key stays parked": (Parked, "next", _unpark_at_once, "missing"),
    "what is discarded counts as handled": (Parked, "discard", _without_note, "after it was discarded"),
    "what fails again parks its key again": (Parked, "fail", _skip_on_failure, "missing"),
    "what cannot be read keeps its place": (KeyParker, "leave", _leave_no_place, "kept no place"),
    "sessions are released": (Session, "close", _keep_session, "undisturbed"),
}
"""By what it does: where it is, what replaces it, and a word of the violation that follows."""
