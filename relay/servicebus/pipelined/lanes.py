"""Senders that share a link: each partition key sends through it, one transfer at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from relay.core.errors import PoisonError, RetryableError
from relay.servicebus.link_suspects import (
    GRACE_S,
    LateAcceptances,
    SuspectBatches,
    Suspects,
    is_the_cause,
    take_note,
)
from relay.servicebus.pipelined import sdk
from relay.servicebus.pipelined.link import Link, LinkLostError
from relay.servicebus.refusals import classify
from relay.servicebus.transfers import LinkLimits, Transfer

# Maximum for a connection and its link to open. It takes half a second, and the first token up to some seconds.
_OPEN_TIMEOUT_S = 15.0
# Maximum for tasks to end that were cancelled.
_CLOSE_TIMEOUT_S = 15.0


class Lane:
    """One link at a time, opened when it is needed, and replaced when it has ended."""

    def __init__(
        self,
        client: ServiceBusClient,
        topic: str,
        accepted_late: Callable[[float], None],
        open_timeout_s: float,
    ) -> None:
        self._client = client
        self._topic = topic
        self._accepted_late = accepted_late
        self._open_timeout_s = open_timeout_s
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.different_sdk: str | None = None
        """Why no link can be opened with this SDK; None if no reason is known."""

    @property
    def open_link(self) -> Link | None:
        """The link, if it is open."""
        return self._link if self._link is not None and self._link.is_usable else None

    async def link(self, timeout_s: float) -> Link:
        """Return the link, open. Raises SendError if it cannot be opened within `timeout_s` seconds."""
        if (link := self.open_link) is not None:
            return link
        if self._opening is None:
            self._give_up()
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(take_note)
        try:
            async with asyncio.timeout(timeout_s):
                # The others continue waiting for it when one gives up.
                return await asyncio.shield(self._opening)
        except TimeoutError as error:
            raise RetryableError(f"No link to Service Bus was opened within {timeout_s:.3g} s.") from error

    async def _open(self) -> Link:
        """Open a link; one that the peer does not open in time is discarded, and does not hold up the next."""
        opening = asyncio.create_task(self._connect())
        # Where the lane is closed meanwhile, nobody waits for it any more.
        opening.add_done_callback(take_note)
        try:
            # The SDK's waits can swallow a cancellation before Python 3.12, so it is not waited for.
            await asyncio.wait({opening}, timeout=self._open_timeout_s)
            if not opening.done():
                raise RetryableError(
                    f"Service Bus did not open a link within {self._open_timeout_s:g} s. The connection is "
                    "discarded, and the next attempt opens another one."
                )
            self._link = opening.result()
            return self._link
        except sdk.DifferentSdkError as error:
            self.different_sdk = str(error)
            raise RetryableError(f"{error}. The next attempt sends through the pool of senders.") from error
        finally:
            self._opening = None
            if self._link is None:
                opening.cancel()
                self._start(_discard(opening))

    async def _connect(self) -> Link:
        return await Link.open(await sdk.Connection.open(self._client, self._topic), self._accepted_late)

    def _give_up(self) -> None:
        """Close the link in the background, when its deliveries in flight are settled."""
        link, self._link = self._link, None
        if link is not None:
            self._start(link.close(GRACE_S))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Close the link, and those that were given up."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background, timeout=_CLOSE_TIMEOUT_S)


async def _discard(opening: asyncio.Task[Link]) -> None:
    """Wait until the opening of a link has ended, and close the link if it was opened after all."""
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().close()


class PipelinedSender:
    """A `transfers.Sender` on the shared link.

    A link that the peer ends is lost for every key that has a transfer in flight on it, and any of these may be
    the cause. So such a key sends its transfer again on a second link, in groups that are halved until it is by
    itself. The others continue, and what happens there is about this transfer.
    """

    def __init__(self, lanes: PipelinedSenders) -> None:
        self._lanes = lanes

    async def __aenter__(self) -> PipelinedSender:
        await self._lanes.free.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lanes.free.release()

    @property
    def known_limits(self) -> LinkLimits | None:
        link = self._lanes.shared.open_link
        return link.limits if link is not None and link.has_room.is_set() else None

    async def limits(self, timeout_s: float) -> LinkLimits:
        link = await self._lanes.shared.link(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while not link.has_room.is_set():
                    # All waiters wake together; the first may use up the space.
                    await link.has_room.wait()
        except TimeoutError as error:
            raise classify(error) from error
        return link.limits

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        wait_s: float | None = None,
    ) -> None:
        lanes = self._lanes
        suspects = lanes.suspects
        ends = asyncio.get_running_loop().time() + (timeout_s if wait_s is None else wait_s)
        if not (suspects and suspects.among(transfer)):
            try:
                link = lanes.shared.open_link or await lanes.shared.link(timeout_s)
                await link.send(transfer, timeout_s, may_send, accepted_late)
            except LinkLostError as error:
                self._suspect(transfer, error)
            except TimeoutError as error:
                raise lanes.late.unanswered(timeout_s) from error
            else:
                suspects.accepted += 1
                return
        while not await self._sent_apart(transfer, timeout_s, may_send, accepted_late, ends):
            # Its link has ended with others in flight: it is sent again among half as many.
            pass

    async def _sent_apart(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        ends: float,
    ) -> bool:
        """Send a suspect on the link that has nothing but suspects; returns whether it was accepted."""
        lanes = self._lanes
        suspects = lanes.suspects
        async with lanes.groups.turn(suspects.among(transfer), ends):
            timeout_s = min(timeout_s, max(0.001, ends - asyncio.get_running_loop().time()))
            try:
                link = await lanes.apart.link(timeout_s)
                await link.send(transfer, timeout_s, may_send, accepted_late)
            except LinkLostError as error:
                # Those that it had to wait for come back in smaller groups.
                if not error.behind or error.busy:
                    self._suspect(transfer, error)
                return False
            except TimeoutError as error:
                raise lanes.late.unanswered(timeout_s) from error
            except (PoisonError, RetryableError) as error:
                if isinstance(error, PoisonError) or error.refused:
                    suspects.clear(transfer)
                raise
        suspects.accepted += 1
        suspects.clear(transfer)
        return True

    def _suspect(self, transfer: Transfer, error: LinkLostError) -> None:
        """Note the end of the link. Returns where the transfer is to be sent again, in a smaller group."""
        if not error.in_flight:
            raise error
        if self._lanes.suspects.ended(transfer, error.in_flight, busy=error.busy):
            raise is_the_cause(error) from error
        if error.in_flight == 1 or error.busy:
            raise error


class PipelinedSenders:
    """Senders to one topic over one link, and a second one for transfers that are sent apart."""

    def __init__(
        self, client: ServiceBusClient, topic: str, size: int, *, open_timeout_s: float = _OPEN_TIMEOUT_S
    ) -> None:
        """Create the lanes.

        `client` makes no retries, and is closed by its owner; `size` partition keys send at a time.
        """
        self.free = asyncio.Semaphore(size)
        self.topic = topic
        self.size = size
        self.late = LateAcceptances()
        self.shared = Lane(client, topic, self.late.note, open_timeout_s)
        self.apart = Lane(client, topic, self.late.note, open_timeout_s)
        self.groups = SuspectBatches()
        self.suspects = Suspects()

    @property
    def different_sdk(self) -> str | None:
        """Why no link can be opened with this SDK; None if no reason is known."""
        return self.shared.different_sdk

    def acquire(self) -> PipelinedSender:
        return PipelinedSender(self)

    async def close(self) -> None:
        await asyncio.gather(self.shared.close(), self.apart.close())
