"""An owned lease: read the changes of its partition, invoke, checkpoint, and renew the lease."""

from __future__ import annotations

import asyncio
import logging

from outbox_relay.emulators.functions.crashing import Crash, CrashPoint
from outbox_relay.emulators.functions.documents import to_text
from outbox_relay.emulators.functions.edges import Edge, Edges
from outbox_relay.emulators.functions.errors import describe
from outbox_relay.emulators.functions.executor import Executor
from outbox_relay.emulators.functions.feed import ChangeFeed, Page
from outbox_relay.emulators.functions.leases import Lease, LeaseLost, LeaseStore
from outbox_relay.emulators.functions.pause import pause
from outbox_relay.emulators.functions.status import FunctionStatus

logger = logging.getLogger(__name__)


class PartitionProcessor:
    """From the acquisition of a lease to its loss or release.

    As FeedProcessorCore and LeaseRenewerCore of the .NET change feed processor and ProcessChangesAsync of the
    trigger's listener: a running invocation is never interrupted. After the lease is lost it continues, with its
    retries, concurrently with the new owner's, and only its checkpoint fails. One failed read, after the SDK's
    retries, ends the processing of the lease.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        store: LeaseStore,
        feed: ChangeFeed,
        executor: Executor,
        rewrite_dates: bool,
        poll_delay_s: float,
        renew_interval_s: float,
        stopping: asyncio.Event,
        status: FunctionStatus,
        crash: Crash,
        edges: Edges,
    ) -> None:
        self.lease = lease
        self.continuation = lease.continuation
        """Of the page that was last read, whether or not it was processed."""
        self.polled = asyncio.Event()
        self._store = store
        self._feed = feed
        self._executor = executor
        self._rewrite_dates = rewrite_dates
        self._poll_delay_s = poll_delay_s
        self._renew_interval_s = renew_interval_s
        self._stopping = stopping
        self._status = status
        self._crash = crash
        self._edges = edges
        self._ending = asyncio.Event()
        self._lost: LeaseLost | None = None

    def end(self) -> None:
        """Stop reading; a running invocation is finished first."""
        self._ending.set()

    async def run(self) -> None:
        """Process until `end` is called.

        Raises LeaseLost, PageWithheld, and the SDK's errors of reading the feed and of checkpoints.
        """
        renewer = asyncio.create_task(self._keep_renewing())
        try:
            await self._process()
        finally:
            renewer.cancel()
            await asyncio.wait({renewer})
        if self._lost is not None:
            raise self._lost

    async def _process(self) -> None:
        while not self._ending.is_set():
            page = await self._feed.read(self.lease.partition, self.continuation)
            self.polled.set()
            self.continuation = page.continuation
            if not page.documents:
                await pause(self._poll_delay_s, until=self._ending)
            elif not self._ending.is_set():
                await self._deliver(page)

    async def _deliver(self, page: Page) -> None:
        text = to_text(page.documents, rewrite_dates=self._rewrite_dates)
        self._status.withheld.pop(self.lease.token, None)
        self._crash.reached(CrashPoint.BEFORE_INVOCATION)
        succeeded = await self._invoke(text, len(page.documents))
        if self._stopping.is_set():
            # Outside drain mode the listener throws here, and even a batch that succeeded is delivered again.
            logger.info("Lease %s is not checkpointed: the host is stopping", self.lease.token)
            self.end()
            return
        if not succeeded:
            self._status.documents_lost += len(page.documents)
            logger.error(
                "Lease %s encountered an unhandled user exception during processing: its %d documents are "
                "checkpointed all the same and will not be delivered again",
                self.lease.token,
                len(page.documents),
            )
        if page.continuation is not None:
            self._crash.reached(CrashPoint.BEFORE_CHECKPOINT)
            await self._checkpoint(page.continuation)
            self._crash.reached(CrashPoint.AFTER_CHECKPOINT)

    async def _checkpoint(self, continuation: str) -> None:
        try:
            self.lease = await self._store.checkpoint(self.lease, continuation)
        except LeaseLost:
            if self._lost is None:  # else it was counted when it was found
                self._edges.met(Edge.LEASE_LOST_MID_INVOCATION)
            raise

    async def _invoke(self, text: str, count: int) -> bool:
        self._status.invoking.append(self.lease.token)
        try:
            succeeded = await self._executor.execute(text, key=self.lease.token)
            self._status.documents_delivered += count if succeeded else 0
            return succeeded
        finally:
            self._status.invoking.remove(self.lease.token)

    async def _keep_renewing(self) -> None:
        # The first renewal comes early, as the processor's does.
        await asyncio.sleep(self._renew_interval_s / 2)
        while True:
            try:
                await self._store.renew(self.lease)
            except LeaseLost as lost:
                if self.lease.token in self._status.invoking:
                    self._edges.met(Edge.LEASE_LOST_MID_INVOCATION)
                self._lost = lost
                self.end()
                return
            except Exception as error:  # noqa: BLE001 - like the real renewer, try again at the next interval
                logger.warning("Lease %s could not be renewed: %s", self.lease.token, describe(error))
            await asyncio.sleep(self._renew_interval_s)
