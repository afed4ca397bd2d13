"""A listener that runs in one of several hosts: the one that has its lock.

As SingletonListener and SingletonManager of Azure/azure-webjobs-sdk: one attempt at the start, further ones at the
polling interval, and a renewal each time that half of the lock's period has passed.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from outbox_relay.emulators.functions.errors import UnableToStart
from outbox_relay.emulators.functions.listener import Theft
from outbox_relay.emulators.functions.pause import pause
from outbox_relay.emulators.functions.startup import MINIMUM_RETRY_S, Startup, as_host_error
from outbox_relay.emulators.functions.status import FunctionStatus
from outbox_relay.emulators.functions.storage import Storage

logger = logging.getLogger(__name__)


class InnerListener(Protocol):
    """The functions that run while the lock is held."""

    def start(self) -> None:
        """Begin. Raises UnableToStart."""

    async def stop(self, *, within_s: float) -> bool:
        """End, and wait that long for what is running; returns whether it has ended."""

    async def abandon(self) -> None:
        """Wait no longer for what is running: the host ends, and the worker with it."""


@dataclass(frozen=True, slots=True)
class LockTimings:
    """Seconds until a lock expires, and between two attempts to acquire it."""

    period_s: float
    poll_s: float

    @classmethod
    def of(cls, milliseconds: int) -> LockTimings:
        return cls(milliseconds / 1_000, milliseconds / 1_000)


class Singleton:
    """Runs `inner` while this host has the lock of the function; `held` is called whenever that changes.

    Without a `storage` the lock is this host's alone, as with an empty AzureWebJobsStorage.
    """

    def __init__(
        self,
        inner: InnerListener,
        *,
        storage: Storage | None,
        timings: LockTimings,
        stopping: asyncio.Event,
        status: FunctionStatus,
        held: Callable[[bool], None],
    ) -> None:
        self._inner = inner
        self._name = f"{status.name}.Listener"
        # As the lease of a blob, the lock outlives a host that is killed, even for a host of the same name.
        self._owner = str(uuid.uuid4())
        self._storage = storage
        self._timings = timings
        self._stopping = stopping
        self._status = status
        self._held = held
        self._holding = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> bool:
        """Start the inner listener if the lock is free, else later; returns whether it runs.

        Raises HostError if it can never start.
        """
        startup = Startup(
            self._begin, minimum_retry_s=MINIMUM_RETRY_S, stopping=self._stopping, status=self._status
        )
        starting = asyncio.create_task(startup.run(), name=f"start of {self._status.name}")
        self._tasks.append(starting)
        await startup.settled.wait()
        # A startup that cannot succeed ends right after it has settled.
        await asyncio.sleep(0)
        if error := as_host_error(starting):
            raise error
        return self._holding

    async def steal(self, token: str | None) -> Sequence[Theft]:
        """Return None: the lock of a timer is not balanced between hosts."""
        return ()

    async def _begin(self) -> None:
        try:
            if not self._try_to_begin():
                logger.debug("Unable to acquire Singleton lock (%s).", self._name)
        except OSError as error:
            raise UnableToStart(f"the storage cannot be used: {error}") from error
        if self._storage is not None:
            self._tasks.append(asyncio.create_task(self._keep(), name=f"lock {self._name}"))

    async def stop(self, *, within_s: float) -> None:
        """Stop the inner listener, and release the lock after it; one that does not end leaves it to expire."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._holding:
            ended = await self._inner.stop(within_s=within_s)
            if ended and self._storage is not None:
                self._storage.unlock(self._name, self._owner)
            self._hold(False)
        await self._inner.abandon()

    async def _keep(self) -> None:
        while True:
            wait_s = self._timings.period_s / 2 if self._holding else self._timings.poll_s
            if await pause(wait_s, until=self._stopping):
                return
            try:
                if not self._holding:
                    self._try_to_begin()
                elif not self._acquire():
                    await self._lose()
            except OSError as error:
                logger.warning("Singleton lock %s could not be read or written: %s", self._name, error)

    def _try_to_begin(self) -> bool:
        if not self._acquire():
            return False
        logger.debug("Singleton lock acquired (%s)", self._name)
        self._inner.start()
        self._hold(True)
        return True

    def _acquire(self) -> bool:
        return self._storage is None or self._storage.try_lock(self._name, self._owner, self._timings.period_s)

    async def _lose(self) -> None:
        """Lose the lock to another host: this one was frozen for longer than its period.

        The real host restarts, and a worker that outlives it finishes its invocation next to the new owner's.
        """
        logger.error("Singleton lock renewal failed for blob '%s': another host has the lease.", self._name)
        self._hold(False)
        await self._inner.stop(within_s=0)

    def _hold(self, holding: bool) -> None:
        self._holding = holding
        self._held(holding)
