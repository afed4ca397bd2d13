"""One owned lease at work: read its partition's changes, hand them on, checkpoint, and keep the lease alive."""

from __future__ import annotations

import asyncio
import logging

from azure.core.exceptions import AzureError
from azure.cosmos.exceptions import CosmosHttpResponseError

from local.functions.crashing import Crash, CrashPoint
from local.functions.documents import to_text
from local.functions.errors import describe
from local.functions.executor import Executor
from local.functions.feed import ChangeFeed, Page
from local.functions.leases import Lease, LeaseLost, LeaseStore
from local.functions.pause import pause
from local.functions.status import FunctionStatus

_RETRY_AFTER = "x-ms-retry-after-ms"
_READ_RETRY_S = 1.0

logger = logging.getLogger(__name__)


class PartitionProcessor:
    """From the acquisition of a lease to its loss or release.

    As FeedProcessorCore and LeaseRenewerCore of the .NET change feed processor and ProcessChangesAsync of the
    trigger's listener do, an invocation under way is never interrupted. When the lease turns out to be lost, the
    invocation goes on, its retries included, beside the new owner's, and only its checkpoint fails. One thing
    differs: a failed read is retried in place, where the real processor gives the lease up and takes it again at
    the next acquire interval.
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
    ) -> None:
        self.lease = lease
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
        self._ending = asyncio.Event()
        self._lost: LeaseLost | None = None
        self._lease_writes = asyncio.Lock()

    def end(self) -> None:
        """Stop reading; an invocation under way is finished first."""
        self._ending.set()

    async def run(self) -> None:
        """Process until `end` is called. Raises LeaseLost, or what Cosmos DB answers to a checkpoint."""
        renewer = asyncio.create_task(self._keep_renewing())
        try:
            await self._process()
        finally:
            renewer.cancel()
            await asyncio.wait({renewer})
        if self._lost is not None:
            raise self._lost

    async def _process(self) -> None:
        continuation = self.lease.continuation
        while not self._ending.is_set():
            page = await self._read(continuation)
            self.polled.set()
            if page is None:
                continue
            continuation = page.continuation
            if not page.documents:
                await pause(self._poll_delay_s, until=self._ending)
            elif not self._ending.is_set():
                await self._deliver(page)

    async def _read(self, continuation: str | None) -> Page | None:
        """The next page, or None after a failed read and a wait."""
        try:
            return await self._feed.read(self.lease.partition, continuation)
        except AzureError as error:
            self.polled.set()
            delay = _retry_delay(error, self._poll_delay_s)
            self._status.last_error = f"the change feed could not be read: {describe(error)}"
            logger.warning("Lease %s, next try in %.3f s: %s", self.lease.token, delay, self._status.last_error)
            await pause(delay, until=self._ending)
            return None

    async def _deliver(self, page: Page) -> None:
        self._crash.reached(CrashPoint.BEFORE_INVOCATION)
        succeeded = await self._invoke(page)
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
            async with self._lease_writes:
                self.lease = await self._store.checkpoint(self.lease, page.continuation)
            self._crash.reached(CrashPoint.AFTER_CHECKPOINT)

    async def _invoke(self, page: Page) -> bool:
        text = to_text(page.documents, rewrite_dates=self._rewrite_dates)
        self._status.invoking.append(self.lease.token)
        try:
            return await self._executor.execute(text, len(page.documents))
        finally:
            self._status.invoking.remove(self.lease.token)

    async def _keep_renewing(self) -> None:
        # The first renewal comes early, as the processor's does.
        await asyncio.sleep(self._renew_interval_s / 2)
        while True:
            try:
                async with self._lease_writes:
                    self.lease = await self._store.renew(self.lease)
            except LeaseLost as lost:
                self._lost = lost
                self.end()
                return
            except Exception as error:  # noqa: BLE001 - like the real renewer, try again at the next interval
                logger.warning("Lease %s could not be renewed: %s", self.lease.token, describe(error))
            await asyncio.sleep(self._renew_interval_s)


def _retry_delay(error: AzureError, poll_delay_s: float) -> float:
    """Seconds: what the service asked for, else the poll delay, but a second at most."""
    headers = (error.headers or {}) if isinstance(error, CosmosHttpResponseError) else {}
    try:
        return float(headers[_RETRY_AFTER]) / 1_000
    except (KeyError, ValueError):
        return min(poll_delay_s, _READ_RETRY_S)
