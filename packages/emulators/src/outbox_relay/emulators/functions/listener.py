"""A trigger's listener: takes its share of the leases and runs a processor for each."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from azure.core.exceptions import AzureError

from outbox_relay.emulators.functions.documents import PageWithheld
from outbox_relay.emulators.functions.edges import Edge, Edges, shuffled
from outbox_relay.emulators.functions.errors import describe
from outbox_relay.emulators.functions.feed import ChangeFeed, PartitionGone, UnknownBounds
from outbox_relay.emulators.functions.leases import Lease, LeaseLost, LeaseStore
from outbox_relay.emulators.functions.partition import PartitionProcessor
from outbox_relay.emulators.functions.pause import pause
from outbox_relay.emulators.functions.startup import MINIMUM_RETRY_S, Startup, as_host_error
from outbox_relay.emulators.functions.status import UNABLE, FunctionStatus, Withheld
from outbox_relay.emulators.functions.trigger import LeaseTimings


def leases_to_take(leases: Sequence[Lease], *, host: str, now: datetime, expiration_s: float) -> Sequence[Lease]:
    """Return the leases that this host should try to acquire now.

    As EqualPartitionsBalancingStrategy in Azure/azure-cosmos-dotnet-v3: up to an equal share of those that have no
    owner or have expired; if there are none, one from the host with the most, if it has too many.
    """
    free = [lease for lease in leases if _is_free(lease, now, expiration_s)]
    owned = _count_by_owner(leases, free, host)
    share = math.ceil(len(leases) / len(owned))
    needed = share - owned[host]
    if needed <= 0:
        return ()
    if free:
        return free[:needed]
    richest = max(reversed(owned), key=lambda owner: owned[owner])
    if owned[richest] <= share - (1 if needed > 1 else 0):
        return ()
    return [next(lease for lease in leases if lease.owner == richest)]


def _is_free(lease: Lease, now: datetime, expiration_s: float) -> bool:
    return not (lease.owner or "").strip() or lease.timestamp + timedelta(seconds=expiration_s) < now


def _count_by_owner(leases: Sequence[Lease], free: Sequence[Lease], host: str) -> dict[str, int]:
    free_ids = {lease.id for lease in free}
    owned: dict[str, int] = {}
    for lease in leases:
        if lease.id not in free_ids:
            owned[str(lease.owner)] = owned.get(str(lease.owner), 0) + 1
    owned.setdefault(host, 0)
    return owned


_FIRST_POLL_S = 10.0
_LOCK_LOOK_S = 15.0

# In one of this many balancing rounds a host steals a lease from a running owner, regardless of its own share.
_ROUNDS_A_THEFT = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """The sources of a listener: the lease store and the change feed."""

    store: LeaseStore
    feed: ChangeFeed


ProcessorFactory = Callable[[Lease, Source], PartitionProcessor]


@dataclass(frozen=True, slots=True)
class Theft:
    """An attempt to steal a function's lease from `victim`, its owner if it had one, and its outcome."""

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
        open_source: Callable[[], Awaitable[Source]],
        timings: LeaseTimings,
        processor: ProcessorFactory,
        stopping: asyncio.Event,
        status: FunctionStatus,
        edges: Edges,
    ) -> None:
        self._owner = owner
        self._open_source = open_source
        self._timings = timings
        self._processor = processor
        self._stopping = stopping
        self._status = status
        self._edges = edges
        self._thefts = edges.random(f"thefts of {owner}")
        self._order = edges.random(f"order of leases taken by {owner}")
        self._source: Source | None = None
        self._processors: dict[str, PartitionProcessor] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._balancing: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()

    async def start(self) -> bool:
        """Create the leases if there are none, take a share, and return once each has been read from.

        If the account does not answer, a container is missing or another host is creating the leases, return False
        and continue in the background. Raises HostError if the containers cannot be used.
        """
        startup = Startup(
            lambda: self._begin(startup.settled.set),
            minimum_retry_s=min(MINIMUM_RETRY_S, self._timings.acquire_s),
            stopping=self._stopping,
            status=self._status,
        )
        self._starting = asyncio.create_task(startup.run(), name=f"start of {self._status.name}")
        self._starting.add_done_callback(self._started)
        await startup.settled.wait()
        # A startup that cannot succeed ends right after it has settled.
        await asyncio.sleep(0)
        if error := as_host_error(self._starting):
            raise error
        await self._first_reads()
        return self._source is not None

    async def _begin(self, put_off: Callable[[], None]) -> None:
        source = await self._open_source()
        await source.store.initialize(
            source.feed.ranges,
            wait_s=min(_LOCK_LOOK_S, self._timings.acquire_s),
            stopping=self._stopping,
            awaited=put_off,
        )
        if self._stopping.is_set():
            return
        leases = await source.store.all()
        self._source = source
        await self._resume(source, leases)
        await self._try_to_balance(source)
        self._balancing = asyncio.create_task(self._keep_balancing(source))

    def _started(self, task: asyncio.Task[None]) -> None:
        if error := as_host_error(task):
            self._status.last_error = f"{UNABLE}: {error}"
            logger.error("The listener for function 'Functions.%s' cannot start. %s", self._status.name, error)

    async def _first_reads(self) -> None:
        try:
            async with asyncio.timeout(_FIRST_POLL_S):
                for processor in list(self._processors.values()):
                    await processor.polled.wait()
        except TimeoutError:
            logger.warning("Not every lease of %s could be read from so far", self._status.name)

    async def stop(self, *, within_s: float) -> None:
        """Stop reading, let running invocations finish, and release the leases; `stopping` is already set.

        An invocation that does not finish in time is abandoned. Its lease is not released but left to expire, as
        when the real host is killed: no other host may take it while the old invocation could still run.
        """
        self._end_processors()
        await self._end({task for task in (self._starting, self._balancing) if task is not None}, within_s)
        # They may have acquired a lease in the meantime.
        self._end_processors()
        await self._end(set(self._running.values()), within_s)

    def _end_processors(self) -> None:
        for processor in self._processors.values():
            processor.end()

    async def _end(self, running: set[asyncio.Task[None]], within_s: float) -> None:
        if not running:
            return
        _, unfinished = await asyncio.wait(running, timeout=within_s)
        for task in unfinished:
            logger.warning("%s did not end within %.1f s and is abandoned", task.get_name(), within_s)
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)

    async def steal(self, token: str | None) -> list[Theft]:
        """Steal the lease of that token, or every lease (None), from its owner, and process it at once.

        Leases that this host processes already are skipped. The owner notices at its next write to the lease; its
        running invocation continues meanwhile. Raises AzureError if the leases cannot be read.
        """
        if self._source is None:
            return []
        source = self._source
        leases = [lease for lease in await source.store.all() if token in (None, lease.token)]
        name = self._status.name
        return [Theft(name, lease.token, lease.owner, await self._take(source, lease)) for lease in leases]

    async def _keep_balancing(self, source: Source) -> None:
        while not await pause(self._timings.acquire_s, until=self._stopping):
            await self._try_to_balance(source)

    async def _try_to_balance(self, source: Source) -> None:
        try:
            await self._balance(source)
        except Exception as error:  # noqa: BLE001 - like the real balancer, try again at the next interval
            logger.warning("Leases of %s could not be balanced: %s", self._status.name, describe(error))

    async def _resume(self, source: Source, leases: Sequence[Lease]) -> None:
        """Take the leases that a host of the same name left behind, without waiting for their expiry."""
        for lease in shuffled(leases, self._order):
            if lease.owner == self._owner:
                await self._take(source, lease)

    async def _balance(self, source: Source) -> None:
        leases = await source.store.all()
        chosen = leases_to_take(
            leases, host=self._owner, now=datetime.now(UTC), expiration_s=self._timings.expiration_s
        )
        for lease in shuffled(chosen, self._order) or self._coveted(leases):
            await self._take(source, lease)

    def _coveted(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return a lease of another running host occasionally, as the seed decides.

        Balancing may take any lease at any moment, even in the middle of an invocation: when hosts come and go,
        clocks differ, or a renewal was late (EqualPartitionsBalancingStrategy in azure-cosmos-dotnet-v3).
        """
        others = [lease for lease in leases if lease.owner not in (None, "", self._owner)]
        if self._thefts is None or not others or self._thefts.randrange(_ROUNDS_A_THEFT):
            return ()
        return [self._thefts.choice(others)]

    async def _take(self, source: Source, lease: Lease) -> bool:
        """Acquire a lease and start its processor; returns whether it did."""
        # Balancing and stealing may want the same lease at the same time.
        async with self._taking:
            if lease.token in self._running or self._stopping.is_set():
                return False
            return await self._acquire(source, lease)

    async def _acquire(self, source: Source, lease: Lease) -> bool:
        try:
            if not lease.partition.is_located:
                lease = lease.located(await source.feed.ranges())
            acquired = await source.store.acquire(lease)
        except LeaseLost as lost:
            logger.info("Lease %s was not acquired: %s", lease.token, lost)
            return False
        logger.debug("Lease %s was acquired to start processing.", lease.token)
        processor = self._processor(acquired, source)
        self._processors[lease.token] = processor
        self._running[lease.token] = asyncio.create_task(
            self._run(source, lease.token, processor), name=f"lease {lease.token} of {self._status.name}"
        )
        self._report()
        return True

    async def _run(self, source: Source, token: str, processor: PartitionProcessor) -> None:
        try:
            given_up = await self._process(token, processor)
            await self._release(source, token, processor, given_up=given_up)
        except PartitionGone as gone:
            logger.info("Lease %s is divided: %s", token, gone)
            await self._divide(source, processor)
        finally:
            # A waiter for the first read must not wait for one that never comes.
            processor.polled.set()
            del self._processors[token]
            del self._running[token]
            self._report()

    async def _process(self, token: str, processor: PartitionProcessor) -> bool:
        """Return True if an error gives up the lease, which the balancer takes again at its next interval."""
        try:
            await processor.run()
        except LeaseLost as lost:
            logger.info(
                "Lease %s was lost. This is expected during scaling and briefly during initialization as the "
                "leases are rebalanced across instances. %s",
                token,
                lost,
            )
        except PartitionGone:
            raise
        except PageWithheld as withheld:
            self._edges.met(Edge.PAGE_WITHHELD)
            self._status.last_error = f"a page of changes could not be parsed: {withheld}"
            self._status.withheld[token] = Withheld(str(withheld), time.time())
            logger.warning(
                "Lease %s encountered an unhandled user exception during processing. %s", token, withheld
            )
        except AzureError as error:
            self._status.last_error = describe(error)
            logger.warning("Lease %s experienced an error during processing: %s", token, describe(error))
            return True
        except Exception as error:
            logger.exception("Lease %s experienced an error during processing.", token)
            self._status.last_error = describe(error)
            return True
        return False

    async def _divide(self, source: Source, processor: PartitionProcessor) -> None:
        """Process what replaces a partition after a split or merge.

        A range that merely moved to another partition is given up, as after any error. If this fails, the lease is
        left to expire, and its next owner tries again (PartitionControllerCore.HandlePartitionGoneAsync).
        """
        lease = processor.lease
        try:
            children = lease.partition.successors(await source.feed.ranges())
            if not children:
                logger.warning("Lease %s is gone, and nothing has replaced its partition", lease.token)
            if not children or lease.partition in children:
                await self._release(source, lease.token, processor, given_up=True)
                return
            for child in await source.store.divide(lease, children, processor.continuation):
                await self._take(source, child)
        except UnknownBounds as error:
            self._status.last_error = describe(error)
            logger.warning("Lease %s could not be divided: %s", lease.token, error)
            await self._release(source, lease.token, processor, given_up=True)
        except AzureError as error:
            self._status.last_error = describe(error)
            logger.warning("Lease %s could not be divided: %s", lease.token, describe(error))

    async def _release(self, source: Source, token: str, processor: PartitionProcessor, *, given_up: bool) -> None:
        try:
            await source.store.release(processor.lease)
            logger.debug("Lease %s was released.", token)
            if given_up:
                self._edges.met(Edge.LEASE_GIVEN_UP)
        except LeaseLost:
            logger.debug("Lease %s has another owner already", token)
        except AzureError as error:
            self._edges.met(Edge.LEASE_LEFT_TO_EXPIRE)
            logger.warning("Lease %s could not be released and must expire: %s", token, describe(error))

    def _report(self) -> None:
        self._status.leases = sorted(self._processors)
