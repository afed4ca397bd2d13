"""Senders that share a link: each partition key sends through it, one transfer at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from azure.servicebus.aio import ServiceBusClient

from relay.errors import RetryableError
from relay.servicebus.pipelined import sdk
from relay.servicebus.pipelined.link import Link, LinkLostError
from relay.servicebus.refusals import classify
from relay.servicebus.transfers import LinkLimits, Transfer

# For what is still in flight on a link that takes nothing new.
_GRACE_S = 30.0


class Lane:
    """One link at a time, opened when it is needed, and replaced when it has ended."""

    def __init__(self, client: ServiceBusClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self.different_sdk: str | None = None
        """Why no link can be opened with this SDK; None as far as is known."""

    @property
    def open_link(self) -> Link | None:
        """The link, if it is open."""
        return self._link if self._link is not None and self._link.is_usable else None

    async def link(self, timeout_s: float) -> Link:
        """The link, open. Raises SendError where it cannot be opened within `timeout_s` seconds."""
        if (link := self.open_link) is not None:
            return link
        if self._opening is None:
            self._give_up()
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_note)
        try:
            async with asyncio.timeout(timeout_s):
                # The others go on waiting for it when one gives up.
                return await asyncio.shield(self._opening)
        except TimeoutError as error:
            raise classify(error) from error

    async def _open(self) -> Link:
        try:
            self._link = await Link.open(await sdk.Connection.open(self._client, self._topic))
            return self._link
        except sdk.DifferentSdkError as error:
            self.different_sdk = str(error)
            raise RetryableError(f"{error}. The next attempt sends through the pool of senders.") from error
        finally:
            self._opening = None

    def _give_up(self) -> None:
        """Close the link in the background, when what is in flight on it is settled."""
        link, self._link = self._link, None
        if link is not None:
            task = asyncio.create_task(link.close(_GRACE_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the link, and those that were given up."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        for task in tuple(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            await link.close()


class PipelinedSender:
    """A partition key's access to the link, for one turn.

    A link that the peer has detached with an error ends for every key that has a transfer in flight on it, and any
    of these may be the cause. So such a key sends its next transfer by itself, on a link where nothing else is in
    flight: the others go on, and what happens there is about this transfer.
    """

    def __init__(self, lanes: PipelinedSenders) -> None:
        self._lanes = lanes
        self._is_suspect = False

    async def __aenter__(self) -> PipelinedSender:
        await self._lanes.free.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lanes.free.release()

    @property
    def known_limits(self) -> LinkLimits | None:
        """As `transfers.Sender`."""
        link = self._lanes.shared.open_link
        return link.limits if link is not None and link.has_room.is_set() else None

    async def limits(self, timeout_s: float) -> LinkLimits:
        """As `transfers.Sender`."""
        link = await self._lanes.shared.link(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while not link.has_room.is_set():
                    # All that wait go on at once, and the first may take the room there is.
                    await link.has_room.wait()
        except TimeoutError as error:
            raise classify(error) from error
        return link.limits

    async def send(self, transfer: Transfer, timeout_s: float, may_send: Callable[[], None]) -> None:
        """As `transfers.Sender`."""
        try:
            if self._is_suspect:
                async with asyncio.timeout(timeout_s), self._lanes.one_at_a_time:
                    link = await self._lanes.apart.link(timeout_s)
                    await link.send(transfer, timeout_s, may_send)
            else:
                link = self._lanes.shared.open_link or await self._lanes.shared.link(timeout_s)
                await link.send(transfer, timeout_s, may_send)
        except LinkLostError as error:
            self._is_suspect = error.by_peer
            raise
        except TimeoutError as error:
            raise classify(error) from error
        self._is_suspect = False


def _note(opening: asyncio.Task[Link]) -> None:
    """Take note of the error, which is raised to those who wait, if anyone still does."""
    if not opening.cancelled():
        opening.exception()


class PipelinedSenders:
    """Senders to one topic over one link, and a second one for transfers that are sent apart."""

    def __init__(self, client: ServiceBusClient, topic: str, size: int) -> None:
        """`size`: how many partition keys may send at a time. The client is closed by its owner."""
        self.free = asyncio.Semaphore(size)
        self.topic = topic
        self.size = size
        self.shared = Lane(client, topic)
        self.apart = Lane(client, topic)
        self.one_at_a_time = asyncio.Lock()

    @property
    def different_sdk(self) -> str | None:
        """Why no link can be opened with this SDK; None as far as is known."""
        return self.shared.different_sdk

    def acquire(self) -> PipelinedSender:
        """A sender for one partition key's turn."""
        return PipelinedSender(self)

    async def close(self) -> None:
        """Close the links."""
        await asyncio.gather(self.shared.close(), self.apart.close())
