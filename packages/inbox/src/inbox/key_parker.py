"""Handling of the message that parks its key, and of the messages behind it, within a session."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from inbox.errors import DeadLetter, NotFetched, NotStorable
from inbox.handling import Handler, call
from inbox.messages import Message
from inbox.parked import EXHAUSTED, NOT_STORABLE, Cause, Kept, ParkedMessage
from inbox.parking import Parking
from inbox.telemetry import Telemetry

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
        attempts: As of `Options`.
        telemetry: Where it is reported.
    """

    def __init__(self, parking: Parking, attempts: int, telemetry: Telemetry) -> None:
        self._parking = parking
        self._attempts = attempts
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

    async def _asked(self, work: Awaitable[T], parked: ParkedMessage) -> T:
        """Return the store's answer, or raise its error about the message.

        Raises NotKept if it does not answer.
        """
        try:
            return await work
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
