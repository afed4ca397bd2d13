"""The dead-letter queue of a subscription: it is peeked, or its messages are received under locks and settled.

It has no sessions, even if the subscription does. Service Bus gives out its messages in an order of its own, and
never the one that is asked for: to get at a message, those before it are locked until the queue is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError

from relay.deadletters import sdk
from relay.deadletters.letter import DeadLetter, lock_of, read

HELD = 1_000
"""Maximum number of dead letters that are locked at a time: each lock is renewed by a request of its own."""

# Number of messages that one request asks for; the service gives 256 KB at most.
_PAGE = 100
# Seconds without a message after which the queue has no more to give.
_QUIET_S = 3.0
_RENEW_EVERY_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Locked:
    """A dead letter under a lock, and the message as it was transferred."""

    letter: DeadLetter
    encoded: bytes
    received: ServiceBusReceivedMessage


class DeadLetterQueue:
    """Use it with `async with`. Its end releases what was not completed.

    Every method may raise an error of the SDK.
    """

    def __init__(self, client: ServiceBusClient, topic: str, subscription: str) -> None:
        self.subscription = subscription
        self._receiver = client.get_subscription_receiver(
            topic, subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )
        sdk.keep_encoded(self._receiver, self._take)
        self._taken: dict[int, tuple[DeadLetter, bytes]] = {}
        self._held: dict[int, ServiceBusReceivedMessage] = {}
        self._renewing: asyncio.Task[None] | None = None
        # The SDK's receivers are not made for concurrent calls.
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> DeadLetterQueue:
        await self._receiver.__aenter__()
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        async with self._turn:
            # What is not abandoned, as after the connection is lost, is free when its lock ends.
            with suppress(AzureError, OSError, ValueError):
                for message in self._held.values():
                    await self._receiver.abandon_message(message)
            await self._receiver.close()

    async def peek(self) -> AsyncIterator[tuple[DeadLetter, bytes]]:
        """Every dead letter with its encoding, those that somebody has locked too. It locks none."""
        number = 1
        while True:
            async with self._turn:
                page = await sdk.peek(self._receiver, number, _PAGE)
            if not page:
                return
            for encoded in page:
                letter = read(self.subscription, encoded)
                number = max(number, letter.sequence_number + 1)
                yield letter, encoded

    async def peek_one(self, number: int) -> tuple[DeadLetter, bytes] | None:
        """The dead letter of a sequence number, with its encoding; None if there is none."""
        async with self._turn:
            page = await sdk.peek(self._receiver, number, 1)
        found = [(read(self.subscription, encoded), encoded) for encoded in page]
        return found[0] if found and found[0][0].sequence_number == number else None

    async def receive(self, wanted: Collection[int]) -> AsyncIterator[Locked]:
        """Lock the dead letters of these sequence numbers, in the order in which the queue gives them out.

        It ends when all of them were received, when the queue has given out nothing for some seconds (the others
        are gone, or locked by somebody else), and when `HELD` are locked.
        """
        left = set(wanted)
        while left and len(self._held) < HELD:
            page = await self._page(min(_PAGE, HELD - len(self._held)))
            before = set(self._held)
            self._held |= {each.letter.sequence_number: each.received for each in page}
            if not self._held.keys() - before:
                # Nothing came, or what comes again because its lock was lost.
                return
            for locked in page:
                if locked.letter.sequence_number in left:
                    left.discard(locked.letter.sequence_number)
                    yield locked

    async def complete(self, locked: Locked) -> bool:
        """Remove a dead letter; returns False if its lock was lost before, so that it is in the queue again."""
        # It may have been received again since, under a new lock.
        received = self._held.pop(locked.letter.sequence_number, locked.received)
        try:
            async with self._turn:
                await self._receiver.complete_message(received)
        except MessageLockLostError:
            return False
        return True

    async def remove(self, wanted: Collection[int]) -> AsyncIterator[DeadLetter]:
        """Remove the dead letters of these sequence numbers; each is given out once it is removed.

        As for `receive`, some may be left. One whose lock was lost before it was removed is locked again.
        """
        left, lost = set(wanted), True
        while left and lost:
            lost = False
            async for locked in self.receive(left):
                if await self.complete(locked):
                    left.discard(locked.letter.sequence_number)
                    yield locked.letter
                else:
                    lost = True

    async def _page(self, count: int) -> list[Locked]:
        async with self._turn:
            page = await self._receiver.receive_messages(count, max_wait_time=_QUIET_S)
        return [Locked(*self._taken.pop(message.sequence_number or 0), message) for message in page]

    def _take(self, encoded: bytes) -> bytes:
        letter = read(self.subscription, encoded)
        self._taken[letter.sequence_number] = letter, encoded
        return lock_of(encoded)

    async def _renew(self) -> None:
        """Renew the locks that are half over."""
        until: dict[int, timedelta] = {}
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            for number, message in list(self._held.items()):
                whole = until.setdefault(number, _left(message))
                if number not in self._held or _left(message) > whole / 2:
                    continue
                try:
                    async with self._turn:
                        await self._receiver.renew_message_lock(message)
                except (AzureError, OSError, ValueError) as error:
                    _log.info("the lock on a dead letter was not renewed: %s", type(error).__name__)
                else:
                    until[number] = _left(message)


def _left(message: ServiceBusReceivedMessage) -> timedelta:
    until = message.locked_until_utc
    return timedelta() if until is None else until - datetime.now(UTC)
