"""Receives from a queue or a subscription with sessions: many sessions at once, each in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Literal

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    SessionLockLostError,
)

from outbox_relay.inbox.connection import Entity, check_retries
from outbox_relay.inbox.contents import Contents, on_whole
from outbox_relay.inbox.errors import LockLost, SessionsNotEnabled
from outbox_relay.inbox.event_loop import Watchdog, end_tasks, finish
from outbox_relay.inbox.key_parker import ReleasedKeyWorker
from outbox_relay.inbox.messages import Handler
from outbox_relay.inbox.options import Options
from outbox_relay.inbox.parking import Parking
from outbox_relay.inbox.session import Failed, Session
from outbox_relay.inbox.telemetry import telemetry_of

FEWEST = 4
"""Open requests of a receiver that has had nothing to do. Each is a connection."""

_SOON_S = 3.0
"""A session that comes this soon shows that more may wait. To open a connection takes the SDK half a second, and
longer if it opens many."""


class AcceptWindow:
    """Doubles while sessions come soon, and is the smallest again when a request has found none.

    Args:
        sessions: Maximum number of sessions that are handled or waited for.
    """

    def __init__(self, sessions: int) -> None:
        self._sessions = sessions
        self._fewest = min(FEWEST, sessions)
        self._ahead = self._fewest

    def wanted(self, busy: int) -> int:
        """Return the number of requests to keep open beside this number of sessions that are handled."""
        return min(self._ahead, self._sessions - busy)

    def came(self, after_s: float) -> None:
        """Note that a session came this many seconds after it was asked for."""
        if after_s < _SOON_S:
            self._ahead = min(self._sessions, 2 * self._ahead)

    def none_came(self) -> None:
        """Note that a request found no session with messages."""
        self._ahead = self._fewest


_SHORTEST_DELAY_S = 0.1
_LONGEST_DELAY_S = 10.0
_CANCEL_AGAIN_S = 1.0
_LOCK_LOST = (LockLost, SessionLockLostError)
_NOT_RETRIED = (MessagingEntityNotFoundError, ServiceBusAuthenticationError, ServiceBusAuthorizationError)

_log = logging.getLogger(__name__)


class Receiver:
    """Calls `handler` with each message, one at a time within a session. What the handler does decides:

    - It returns: the message is completed.
    - It raises `DeadLetter`: the message is dead-lettered, and its successors follow. With `on_poison="park"` it
      is parked, and its successors are set aside behind it.
    - It raises anything else: the session pauses, then the message is delivered again, before its successors. At
      the subscription's maximum delivery count it is dead-lettered; with `park`, it is parked after `attempts`.
    - The session's lock is lost while it runs: it is cancelled, nothing is settled, and the message is delivered
      again.

    Args:
        client: From `inbox.connect`; open.
        handler: A coroutine function, or a plain function that does not block: it runs on the event loop.
        topic, subscription: The entity to receive from; or
        queue: A queue.
        contents: Where to get the bodies of large events, such as `BlobContents`; without it these messages are
            dead-lettered as `content-not-fetched`.
        on_poison: What becomes of the successors of a message that cannot be handled. `skip`: they follow. `park`:
            they are set aside behind it in `parking`, until an operator releases the key. The receiver then hands
            them to the handler in order.
        parking: A store of the handler's consumer, such as `SqliteStore`.
        options: The fields of `Options`, such as `sessions=64`.

    Raises:
        ValueError: The client retries, a number is out of its range, or it is not clear what to receive from, or
            where to park keys.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        handler: Handler,
        *,
        topic: str | None = None,
        subscription: str | None = None,
        queue: str | None = None,
        contents: Contents | None = None,
        on_poison: Literal["skip", "park"] = "skip",
        parking: Parking | None = None,
        **options: Any,
    ) -> None:
        self._parking = _parking_of(on_poison, parking)
        check_retries(client)
        self._entity = Entity.of(client, topic, subscription, queue)
        self._telemetry = telemetry_of(self._entity.topic, subscription)
        self._handler = self._telemetry.observed(on_whole(handler, contents))
        self._options = Options(**options)
        self._width = AcceptWindow(self._options.sessions)
        self._watchdog = Watchdog(self._options.renew_s)
        self._stopping = asyncio.Event()
        self._failed: asyncio.Future[BaseException]
        self._workers: set[asyncio.Task[None]] = set()
        self._handing_over: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._accepting: set[asyncio.Task[Any]] = set()
        self._pausing: set[asyncio.Task[None]] = set()
        self._releasing: set[asyncio.Task[None]] = set()
        self._reached = False

    async def run(self) -> None:
        """Receive until `stop()` or until cancelled. Run it once.

        When stopped, running handlers finish first. When cancelled, they are cancelled, and their messages are
        delivered again.

        Raises:
            MessagingEntityNotFoundError, ServiceBusAuthenticationError, ServiceBusAuthorizationError: At the
                start. Later they are retried like any connection error.
            SessionsNotEnabled: The queue or subscription does not require sessions.
        """
        self._failed = asyncio.get_running_loop().create_future()
        self._watchdog.start()
        self._widen()
        if self._parking is not None:
            released = ReleasedKeyWorker(
                self._parking, self._entity.topic, self._handler, self._options, self._telemetry
            )
            self._start(self._handing_over, released.run(self._stopping))
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({self._failed, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                await self._let_finish()
        finally:
            self._stopping.set()
            self._watchdog.stop()
            await finish(self._end(stopping))
        if self._failed.done():
            raise self._failed.result()

    def stop(self) -> None:
        """Make `run` return soon: no more messages are handled, and every session is released.

        Call it from the event loop's thread.
        """
        self._stopping.set()

    def _widen(self) -> None:
        """Start the workers that are to wait for a session, beside those that have one."""
        while not self._stopping.is_set() and self._waiting < self._width.wanted(self._busy):
            self._start(self._workers, self._work())

    def _start(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(self._ended)

    @property
    def _waiting(self) -> int:
        return len(self._workers) - self._busy

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._workers.discard(task)
        self._handing_over.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_result(error)

    async def _let_finish(self) -> None:
        # Cancel only tasks that wait for a session, repeatedly, because the SDK may swallow a cancellation.
        while waiting := {task for task in self._accepting if not task.done()}:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting, timeout=_CANCEL_AGAIN_S)
        if busy := {*self._workers, *self._handing_over, *self._pausing}:
            await asyncio.wait(busy, timeout=self._options.grace_s)

    async def _end(self, stopping: asyncio.Task[Any]) -> None:
        await end_tasks([stopping, *self._workers, *self._handing_over, *self._pausing])
        if self._releasing:
            await asyncio.wait({*self._releasing})

    async def _work(self) -> None:
        delay_s = _SHORTEST_DELAY_S
        while not self._stopping.is_set() and self._waiting <= self._width.wanted(self._busy):
            try:
                await self._next_session()
            except OperationTimeoutError:
                delay_s = _SHORTEST_DELAY_S  # no session has messages
                self._width.none_came()
            except SessionsNotEnabled:
                raise
            except Exception as error:
                # Under faults the SDK (7.15.0) raises AttributeError, KeyError, TypeError and ValueError too.
                if not self._reached and isinstance(error, _NOT_RETRIED):
                    error.add_note(
                        f"While receiving from {self._entity.name}: check its name, and the right to listen."
                    )
                    raise
                # An occasional completion is too late for the lock. If it keeps happening, the clock may be wrong.
                usual = isinstance(error, _LOCK_LOST) and delay_s == _SHORTEST_DELAY_S
                level = logging.INFO if usual else logging.WARNING
                what = "Lost a session of %s, what was not settled is delivered again: %s: %s"
                _log.log(level, what, self._entity.name, type(error).__name__, error)
                await self._wait(delay_s)
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
            else:
                delay_s = _SHORTEST_DELAY_S
        # Remove the worker now, so that the next check sees that it has ended.
        self._workers.discard(asyncio.current_task())

    async def _next_session(self) -> None:
        """Accept a session, handle its messages, and release it."""
        session = Session(
            self._open(),
            self._entity.topic,
            self._entity.subscription,
            self._handler,
            self._options,
            self._telemetry,
            self._parking,
        )
        handed_over = False
        try:
            await self._accept(session)
            failed = await self._handle(session)
            if failed is not None and len(self._pausing) < self._options.sessions:
                # Free this worker for other sessions during the pause, so that a failing one cannot starve them.
                self._pause(session, failed)
                handed_over = True
            elif failed is not None:
                await session.retry(failed, self._stopping)
        finally:
            if not handed_over:
                self._release(session)

    async def _handle(self, session: Session) -> Failed | None:
        self._busy += 1
        self._widen()
        try:
            return await session.handle(self._stopping)
        finally:
            self._busy -= 1

    def _open(self) -> ServiceBusReceiver:
        return self._entity.receiver(
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=self._options.accept_s,
            # Without it the SDK (7.15.0) releases what arrives between two calls of receive_messages, one by one,
            # and the broker delivers that again at once, possibly out of order.
            prefetch_count=self._options.prefetch,
        )

    async def _accept(self, session: Session) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        self._accepting.add(worker)
        asked_at = time.monotonic()
        try:
            await session.accept()
        except OperationTimeoutError:
            self._reached = True
            raise
        except Exception as error:
            if "cannot be created on an entity that does not require sessions" in str(error):
                raise SessionsNotEnabled(
                    f"{self._entity.name} does not require sessions. Create it anew with requiresSession: true; "
                    "it cannot be changed later."
                ) from error
            raise
        finally:
            self._accepting.discard(worker)
        self._reached = True
        self._width.came(time.monotonic() - asked_at)
        self._watchdog.allow(session.renewed_within_s)

    def _release(self, session: Session) -> None:
        """Release a session in the background, because the SDK (7.15.0) then waits for up to a second."""
        task = asyncio.create_task(session.close())
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    def _pause(self, session: Session, failed: Failed) -> None:
        task = asyncio.create_task(self._retry(session, failed))
        self._pausing.add(task)
        task.add_done_callback(self._pausing.discard)

    async def _retry(self, session: Session, failed: Failed) -> None:
        try:
            await session.retry(failed, self._stopping)
        except Exception as error:  # noqa: BLE001 - as in `_work`
            _log.info("A failed message was not abandoned (%s): its lock ends by itself", type(error).__name__)
        finally:
            self._release(session)

    async def _wait(self, seconds: float) -> None:
        waiting = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({waiting}, timeout=seconds)
        waiting.cancel()


def _parking_of(on_poison: str, parking: Parking | None) -> Parking | None:
    if on_poison not in ("skip", "park"):
        raise ValueError(f"on_poison is {on_poison!r}; it must be 'skip' or 'park'.")
    if (on_poison == "park") != (parking is not None):
        raise ValueError("Give on_poison='park' and parking=store together: a store is where keys are parked.")
    return parking
