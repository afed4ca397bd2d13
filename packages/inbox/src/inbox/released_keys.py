"""Hands the messages of released keys to the handler, in order."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from inbox.cancellation import end_tasks, finish, within
from inbox.errors import DeadLetter, LockLost, NotFetched
from inbox.handling import Handler, call
from inbox.key_parker import log_failure, log_parked
from inbox.lock import Lock
from inbox.messages import Message
from inbox.options import Options
from inbox.parked import EXHAUSTED, UNREADABLE, Cause, Claim, ParkedMessage
from inbox.parking import ClaimLost, Parking
from inbox.telemetry import Telemetry

_LONGEST_DELAY_S = 60.0

_log = logging.getLogger(__name__)


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
