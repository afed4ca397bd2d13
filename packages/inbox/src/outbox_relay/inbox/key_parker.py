"""Handles the message that parks its key and those behind it, and the messages of released keys, in order."""

from __future__ import annotations

import asyncio
import itertools
import logging
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from outbox_relay.inbox.errors import DeadLetter, LockLost, NotFetched, NotStorable
from outbox_relay.inbox.event_loop import end_tasks, finish, within
from outbox_relay.inbox.lock import Lock
from outbox_relay.inbox.messages import Handler, Message, call
from outbox_relay.inbox.options import Options
from outbox_relay.inbox.parking import (
    EXHAUSTED,
    NOT_STORABLE,
    UNREADABLE,
    Cause,
    Claim,
    ClaimLost,
    Kept,
    ParkedMessage,
    Parking,
)
from outbox_relay.inbox.telemetry import Telemetry

_FRAMES = 5

_log = logging.getLogger(__name__)

T = TypeVar("T")


class NotKept(Exception):
    """The store could not set a message aside. It must not be handled, and its successors have to wait."""


class KeyParker:
    """Handles the messages of a session, or sets them aside if their key is parked.

    Whether it is parked is read once. While the session is locked, nobody else parks the key, except a receiver
    that has lost this session and has not noticed: what that one parks was handled before, or is still to be
    delivered to this one (docs/decisions/0025-parked-keys-of-a-consumer.md).

    Args:
        parking: Where keys are parked.
        options: Those of the receiver.
        telemetry: Where it is reported.
    """

    def __init__(self, parking: Parking, options: Options, telemetry: Telemetry) -> None:
        self._parking = parking
        self._attempts = options.attempts
        self._answer_s = options.answer_s
        self._telemetry = telemetry
        self._is_parked: bool | None = None

    async def handle(self, message: Message, handler: Handler) -> None:
        """Call the handler with a message, or set the message aside; either way it may be completed then.

        Raises:
            DeadLetter: It cannot be stored; its place is kept.
            NotKept: The store could not set it aside.
            NotFetched: Its content cannot be had now.
            Exception: The handler has failed, not for the last time.
        """
        parked = ParkedMessage.of(message)
        if await self._take(parked):
            return
        if message.delivery_count >= self._attempts:
            await self._park(parked, Cause(EXHAUSTED))
            return
        try:
            await call(handler, message)
            return
        except DeadLetter as poison:
            cause = Cause.of(poison)
        except NotFetched:
            raise
        except Exception as error:
            delivery = message.delivery_count + 1
            if delivery < self._attempts:
                raise
            log_failure(message.id, message.key, delivery, error)
            cause = Cause.of(error)
        await self._park(parked, cause)

    async def leave(self, parked: ParkedMessage, unreadable: DeadLetter) -> None:
        """Keep the place of a message that cannot be read. Raises NotKept."""
        if not await self._take(parked):
            await self._park(parked, Cause.of(unreadable))

    async def _take(self, parked: ParkedMessage) -> bool:
        """Set a message aside if its key is parked; returns False if it is to be handled."""
        if self._is_parked is None:
            self._is_parked = await self._asked(self._parking.is_parked(parked.topic, parked.key), parked)
        if self._is_parked:
            self._is_parked = await self._stored(self._parking.set_aside, parked) is not Kept.NOT_PARKED
        return self._is_parked

    async def _park(self, parked: ParkedMessage, cause: Cause) -> None:
        async def park(parked: ParkedMessage) -> Kept:
            kept = await self._parking.park(parked, cause)
            if kept is Kept.ASIDE:
                log_parked(parked, cause)
                self._telemetry.parked(cause.reason)
            return kept

        self._is_parked = None
        await self._stored(park, parked)

    async def _stored(
        self, store: Callable[[ParkedMessage], Coroutine[Any, Any, Kept]], parked: ParkedMessage
    ) -> Kept:
        """Store a message, or if that is impossible, its place."""
        try:
            return await self._asked(store(parked), parked)
        except NotStorable as refusal:
            kept = await self._asked(store(replace(parked, message=None)), parked)
            if kept is Kept.ASIDE:
                raise DeadLetter(NOT_STORABLE, str(refusal)) from refusal
            return kept

    async def _asked(self, work: Coroutine[Any, Any, T], parked: ParkedMessage) -> T:
        """Return the store's answer, or raise its error about the message.

        Raises NotKept if it does not answer in time: another process may have stopped within a transaction.
        """
        try:
            return await within(self._answer_s, work, "The store that parks keys")
        except (NotStorable, DeadLetter):
            raise
        except Exception as error:
            what = "The store that parks keys did not answer about message %r of session %r: %s"
            _log.warning(what, parked.id, parked.key, type(error).__name__)
            raise NotKept from error


def log_parked(parked: ParkedMessage, cause: Cause) -> None:
    """Log that a key is parked, without text that may be personal."""
    what = "Parked the key %r of %s because of message %r (number %s): %s (%s)"
    _log.error(
        what, parked.key, parked.topic, parked.id, parked.number, cause.reason, cause.error or "no exception"
    )


def log_failure(id_: Any, key: Any, attempt: int, error: Exception) -> None:
    """Log that a handler has failed: with what and where, but without its text, which may be personal."""
    _log.error(
        "The handler of message %r of session %r failed at delivery %s: %s", id_, key, attempt, _where(error)
    )
    _log.debug("The error in full", exc_info=error)


def _where(error: BaseException) -> str:
    """Return the type of an exception, and the places in the code that it has passed, the innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[::-1][:_FRAMES]
    places = ", ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{type(error).__name__} at {places}" if places else type(error).__name__


_LONGEST_DELAY_S = 60.0


@dataclass(slots=True)
class _Claimed:
    """A claim, as a lock that is renewed. The time that it lasts counts from before it was asked for."""

    parking: Parking
    claim: Claim
    lasts: timedelta
    locked_until_utc: datetime | None

    async def renew_lock(self) -> None:
        """Extend the claim. Raises LockLost if it is lost."""
        until = datetime.now(UTC) + self.lasts
        if not await self.parking.renew(self.claim, self.lasts):
            raise LockLost("the claim was lost")
        self.locked_until_utc = until


class ReleasedKeyWorker:
    """Looks for released keys of a topic, and hands their messages to the handler.

    Args:
        parking: Where the keys are parked.
        topic: The topic, or the queue.
        handler: As of the receiver.
        options: Those of the receiver: at most `sessions` keys at a time.
        telemetry: Where it is reported.
    """

    def __init__(
        self, parking: Parking, topic: str, handler: Handler, options: Options, telemetry: Telemetry
    ) -> None:
        self._parking = parking
        self._topic = topic
        self._handler = handler
        self._options = options
        self._telemetry = telemetry
        self._lasts = timedelta(seconds=options.claim_s)
        self._busy: set[asyncio.Task[None]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Hand over until the receiver stops. Messages that are being handled then are handled to their end."""
        stopped = asyncio.create_task(stopping.wait())
        delay_s = self._options.released_s
        try:
            while not stopping.is_set():
                try:
                    found = await self._look(stopping)
                    delay_s = self._options.released_s
                except Exception as error:  # noqa: BLE001 - a store may raise anything
                    _log.warning("Could not look for released keys of %s: %s", self._topic, type(error).__name__)
                    found, delay_s = False, min(2 * delay_s, max(_LONGEST_DELAY_S, self._options.released_s))
                if not found:
                    await asyncio.wait({stopped}, timeout=delay_s)
                elif len(self._busy) >= self._options.sessions:
                    await asyncio.wait({*self._busy, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._busy:
                await asyncio.wait({*self._busy})
        finally:
            stopped.cancel()
            await end_tasks([*self._busy])

    async def _look(self, stopping: asyncio.Event) -> bool:
        """Claim a released key, and begin with it; returns whether there was one."""
        until = datetime.now(UTC) + self._lasts
        asking = self._parking.claim(self._topic, self._lasts)
        claim = await within(self._options.answer_s, asking, "Looking for released keys")
        if claim is None:
            return False
        lock = Lock(
            _Claimed(self._parking, claim, self._lasts, until), self._options.renew_s, self._options.answer_s
        )
        task = asyncio.create_task(self._hand_over(claim, lock, stopping))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return True

    async def _hand_over(self, claim: Claim, lock: Lock, stopping: asyncio.Event) -> None:
        _log.info("Handing over the messages of the released key %r of %s", claim.key, claim.topic)
        lock.start()
        try:
            await self._messages(claim, lock, stopping)
        except (LockLost, ClaimLost):
            _log.info("The claim on the released key %r of %s was lost", claim.key, claim.topic)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            what = "The hand-over of the released key %r of %s was interrupted: %s"
            _log.warning(what, claim.key, claim.topic, type(error).__name__)
        finally:
            await lock.stop()

    async def _messages(self, claim: Claim, lock: Lock, stopping: asyncio.Event) -> None:
        done: ParkedMessage | None = None
        try:
            while not stopping.is_set():
                parked = await lock.during(self._parking.next(claim, done))
                if parked is None:
                    _log.info("The key %r of %s is no longer parked", claim.key, claim.topic)
                    return
                done, cause = await self._try(parked, lock, stopping)
                if cause is not None:
                    await lock.during(self._parking.fail(claim, cause))
                    log_parked(parked, cause)
                    self._telemetry.parked(cause.reason)
                    return
            await self._give_back(claim, done)
        except (LockLost, ClaimLost):
            raise
        except BaseException:
            await self._give_back(claim, done)
            raise

    async def _call(self, parked: ParkedMessage, message: Message, lock: Lock, stopping: asyncio.Event) -> None:
        """Call the handler. While the content of a large event cannot be had, wait, which is no attempt.

        Raises:
            NotFetched: The receiver stops before the content can be had.
            Exception: As the handler.
        """
        for attempt in itertools.count():
            try:
                await lock.during(call(self._handler, message))
                return
            except NotFetched:
                await lock.pause(self._options.pause_s(attempt), stopping)
                if stopping.is_set():
                    raise

    async def _give_back(self, claim: Claim, done: ParkedMessage | None) -> None:
        """Let others claim the key at once, if the store answers; otherwise the claim ends by itself."""
        giving = self._parking.give_back(claim, done)
        try:
            await finish(within(self._options.answer_s, giving, "Giving back a released key"))
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            _log.info("The claim on the key %r was not given back: %s", claim.key, type(error).__name__)

    async def _try(
        self, parked: ParkedMessage, lock: Lock, stopping: asyncio.Event
    ) -> tuple[ParkedMessage | None, Cause | None]:
        """Hand a message over.

        Returns:
            It if it was handled, and why its key is to be parked again; neither if it is to be repeated.
        """
        if parked.message is None:
            return None, Cause(UNREADABLE)
        if parked.attempts > self._options.attempts:
            return None, Cause(EXHAUSTED)
        try:
            await self._call(parked, parked.message, lock, stopping)
        except (LockLost, NotFetched):
            raise
        except DeadLetter as poison:
            return None, Cause.of(poison)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            log_failure(parked.id, parked.key, parked.attempts, error)
            if parked.attempts >= self._options.attempts:
                return None, Cause.of(error)
            await lock.pause(self._options.pause_s(parked.attempts - 1), stopping)
            return None, None
        return parked, None
