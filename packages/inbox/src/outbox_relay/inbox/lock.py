"""A lock on a session, a message or a released key: renewed while held; a lost one cancels the handler."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from outbox_relay.inbox.errors import LockLost
from outbox_relay.inbox.event_loop import end_tasks, finish, within

_AGAIN_S = 1.0
_SHORTEST_S = 0.05

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Lockable(Protocol):
    """A session that was accepted, a message that was received, or a released key that was claimed."""

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the lock ends."""

    async def renew_lock(self) -> Any:
        """Extend the lock."""


@dataclass(frozen=True, slots=True)
class LockedMessage:
    """A message that was received without a session."""

    receiver: ServiceBusReceiver
    message: ServiceBusReceivedMessage

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the lock ends."""
        return self.message.locked_until_utc

    async def renew_lock(self) -> Any:
        """Extend the lock."""
        return await self.receiver.renew_message_lock(self.message)


class Lock:
    """Renews a lock in the background, from `start` to `stop`.

    Args:
        locked: What is locked.
        renew_s: Maximum seconds between two renewals; half of the remaining lock time if that is less. A lost
            lock is noticed by the next renewal: until then, two receivers may handle the same message.
        answer_s: Seconds until an unanswered renewal is repeated. The lock is lost when its own time is over.
    """

    def __init__(self, locked: Lockable, renew_s: float, answer_s: float) -> None:
        self._locked = locked
        self._renew_s = renew_s
        self._answer_s = answer_s
        self._lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.renewing: asyncio.Task[None] | None = None
        """Ends when the lock is lost; to be cancelled by `stop`, or with those of other locks."""

    def start(self) -> None:
        self.renewing = asyncio.create_task(self._renew())

    @property
    def renewed_within_s(self) -> float:
        """Seconds within which it has to be renewed: `renew_s`, or half of its time if that is less."""
        return max(_SHORTEST_S, min(self._renew_s, (self._ends_at() - time.monotonic()) / 2))

    async def stop(self) -> None:
        if self.renewing is not None:
            await end_tasks([self.renewing])

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` as long as the lock is held, and return its result.

        Raises:
            LockLost: The lock was lost first. `work` was cancelled and has ended.
            Exception: Whatever `work` raises.
        """
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._lost}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise LockLost("the lock was lost, and the handler was cancelled")
        finally:
            if not task.done():
                task.cancel()
                await finish(_ended(task))
        if task.cancelled():
            raise RuntimeError("The handler ended with a cancellation that the receiver did not ask for.")
        return task.result()

    async def pause(self, seconds: float, stopping: asyncio.Event) -> None:
        """Hold the session for a time, or until the receiver stops or the lock is lost."""
        waiting: asyncio.Future[Any] = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({waiting, self._lost}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def _renew(self) -> None:
        ends_at = self._ends_at()
        wait_s = self._renew_s
        while True:
            left = ends_at - time.monotonic()
            await asyncio.sleep(max(_SHORTEST_S, min(wait_s, left / 2)))
            try:
                await self._renew_once(ends_at)
            except (SessionLockLostError, MessageLockLostError, LockLost):
                break
            except Exception as error:  # noqa: BLE001 - under faults the SDK (7.15.0) raises many kinds
                _log.info("A lock could not be renewed: %s", type(error).__name__)
                if time.monotonic() >= ends_at:
                    break
                wait_s = _AGAIN_S
            else:
                ends_at, wait_s = self._ends_at(), self._renew_s
        self._lost.set_result(None)

    async def _renew_once(self, ends_at: float) -> None:
        limit_s = max(_SHORTEST_S, min(self._answer_s, ends_at - time.monotonic()))
        await within(limit_s, self._locked.renew_lock(), "The renewal of the lock")

    def _ends_at(self) -> float:
        """Return the time at which the lock ends, on the monotonic clock."""
        until = self._locked.locked_until_utc
        assert until is not None, "the broker gives it with the session or the message"
        left = until - datetime.now(UTC)
        return time.monotonic() + left.total_seconds()


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task repeatedly until it ends, because a handler may wait in the SDK as well."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
    if not task.cancelled():
        task.exception()  # the error of a cancelled handler is ignored
