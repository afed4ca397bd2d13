"""The safeguards of `inbox`, each taken out by replacing one function."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from inbox import session
from inbox.errors import DeadLetter
from inbox.handling import Handler, call
from inbox.lock import Lock
from inbox.messages import Message
from inbox.received import read
from inbox.sequences import Arrival, Step
from inbox.session import Session
from inbox.stores.database import SqliteConnection
from inbox.stores.port import Identity
from inbox.stores.sql import recording
from inbox.stores.sqlite import SqliteStore

_settle = Session._settle


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
    "sessions are released": (Session, "close", _keep_session, "undisturbed"),
}
"""By what it does: where it is, what replaces it, and a word of the violation that follows."""
