"""A trigger's listener: takes its share of the leases and runs a processor for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from azure.core.exceptions import AzureError

from local.functions.balancing import leases_to_take
from local.functions.documents import PageWithheld
from local.functions.errors import HostError, describe
from local.functions.feed import ChangeFeed
from local.functions.leases import Lease, LeaseLost, LeaseStore
from local.functions.partition import PartitionProcessor
from local.functions.pause import pause
from local.functions.status import FunctionStatus
from local.functions.trigger import LeaseTimings

_FIRST_POLL_S = 10.0

logger = logging.getLogger(__name__)

ProcessorFactory = Callable[[Lease], PartitionProcessor]


@dataclass(frozen=True, slots=True)
class Theft:
    """An attempt to take a function's lease from `victim`, its owner (None: it had none), and how it ended."""

    function: str
    token: str
    victim: str | None
    succeeded: bool


class Listener:
    """Starts and stops with the host, as the trigger's listener with its change feed processor does."""

    def __init__(
        self,
        *,
        owner: str,
        store: LeaseStore,
        feed: ChangeFeed,
        timings: LeaseTimings,
        processor: ProcessorFactory,
        stopping: asyncio.Event,
        status: FunctionStatus,
    ) -> None:
        self._owner = owner
        self._store = store
        self._feed = feed
        self._timings = timings
        self._processor = processor
        self._stopping = stopping
        self._status = status
        self._processors: dict[str, PartitionProcessor] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._balancing: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()

    async def start(self) -> None:
        """Create the leases if there are none, take a share, and return once each has been read from.

        Raises HostError if the containers cannot be read.
        """
        try:
            await self._store.initialize(await self._feed.ranges())
            await self._resume()
            await self._balance()
        except AzureError as error:
            raise HostError(
                f"function {self._status.name}: its leases cannot be kept: {describe(error)}"
            ) from error
        await self._first_reads()
        self._balancing = asyncio.create_task(self._keep_balancing())

    async def _first_reads(self) -> None:
        try:
            async with asyncio.timeout(_FIRST_POLL_S):
                for processor in list(self._processors.values()):
                    await processor.polled.wait()
        except TimeoutError:
            logger.warning("Not every lease of %s could be read from so far", self._status.name)

    async def stop(self, *, within_s: float) -> None:
        """Stop reading, let invocations under way finish, and release the leases; `stopping` is already set.

        What has not ended by then is abandoned. Its lease is not released but left to expire, as when the real
        host's process is killed: nobody may take it while the old invocation could still be at work.
        """
        running = set(self._running.values())
        if self._balancing is not None:
            running.add(self._balancing)
        for processor in self._processors.values():
            processor.end()
        if not running:
            return
        _, unfinished = await asyncio.wait(running, timeout=within_s)
        for task in unfinished:
            logger.warning("%s did not end within %.1f s and is abandoned", task.get_name(), within_s)
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)

    async def steal(self, token: str | None) -> list[Theft]:
        """Take the lease of that token, or every one (None), from its living owner, and process it at once.

        What this host processes already is left alone. The owner learns of it at its next write to the lease; an
        invocation that it has under way goes on meanwhile. Raises AzureError if the leases cannot be read.
        """
        leases = [lease for lease in await self._store.all() if token in (None, lease.token)]
        name = self._status.name
        return [Theft(name, lease.token, lease.owner, await self._take(lease)) for lease in leases]

    async def _keep_balancing(self) -> None:
        while not await pause(self._timings.acquire_s, until=self._stopping):
            try:
                await self._balance()
            except Exception as error:  # noqa: BLE001 - like the real balancer, try again at the next interval
                logger.warning("Leases of %s could not be balanced: %s", self._status.name, describe(error))

    async def _resume(self) -> None:
        """Take what a host of the same name left behind, without waiting for it to expire."""
        for lease in await self._store.all():
            if lease.owner == self._owner:
                await self._take(lease)

    async def _balance(self) -> None:
        leases = await self._store.all()
        chosen = leases_to_take(
            leases, host=self._owner, now=datetime.now(UTC), expiration_s=self._timings.expiration_s
        )
        for lease in chosen:
            await self._take(lease)

    async def _take(self, lease: Lease) -> bool:
        """Acquire a lease and start its processor; whether that was to be done, and was."""
        # Balancing and stealing may want the same lease at the same time.
        async with self._taking:
            if lease.token in self._running or self._stopping.is_set():
                return False
            return await self._acquire(lease)

    async def _acquire(self, lease: Lease) -> bool:
        try:
            acquired = await self._store.acquire(lease)
        except LeaseLost as lost:
            logger.info("Lease %s was not acquired: %s", lease.token, lost)
            return False
        logger.info("Lease %s was acquired to start processing.", lease.token)
        processor = self._processor(acquired)
        self._processors[lease.token] = processor
        self._running[lease.token] = asyncio.create_task(
            self._run(lease.token, processor), name=f"lease {lease.token} of {self._status.name}"
        )
        self._report()
        return True

    async def _run(self, token: str, processor: PartitionProcessor) -> None:
        try:
            await self._process(token, processor)
            await self._release(token, processor)
        finally:
            # Whoever waits for the first read must not wait for one that will not come.
            processor.polled.set()
            del self._processors[token]
            del self._running[token]
            self._report()

    async def _process(self, token: str, processor: PartitionProcessor) -> None:
        try:
            await processor.run()
        except LeaseLost as lost:
            logger.info(
                "Lease %s was lost. This is expected during scaling and briefly during initialization as the "
                "leases are rebalanced across instances. %s",
                token,
                lost,
            )
        except PageWithheld as withheld:
            self._status.last_error = f"a page of changes could not be parsed: {withheld}"
            logger.warning(
                "Lease %s encountered an unhandled user exception during processing. %s", token, withheld
            )
        except Exception as error:  # like the real processor, give the lease back to the balancer
            logger.exception("Lease %s experienced an error during processing.", token)
            self._status.last_error = describe(error)

    async def _release(self, token: str, processor: PartitionProcessor) -> None:
        try:
            await self._store.release(processor.lease)
            logger.info("Lease %s was released.", token)
        except LeaseLost:
            logger.debug("Lease %s has another owner already", token)
        except AzureError as error:
            logger.warning("Lease %s could not be released and must expire: %s", token, describe(error))

    def _report(self) -> None:
        self._status.leases = sorted(self._processors)
