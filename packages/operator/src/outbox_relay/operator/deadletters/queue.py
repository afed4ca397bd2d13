"""The dead-letter queue of a subscription or a queue: it is peeked, or its messages are locked and settled.

It has no sessions, even if the subscription does. Service Bus gives out its messages in an order of its own, and
never the one that is asked for: to get at a message, those before it are locked until the queue is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError

from outbox_relay.operator.deadletters import sdk
from outbox_relay.operator.deadletters.letter import DeadLetter, lock_of, read
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity

HELD = 10_000
"""Maximum number of dead letters that are locked at a time."""

# Number of messages that one request asks for, and of locks that one request names.
_PAGE = 100
_LOCKS = 200
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

    def __init__(self, client: ServiceBusClient, outlet: ReceivingEntity) -> None:
        self.subscription = outlet.name
        self._receiver = outlet.receiver(client, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
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
            # What is not released, as after the connection is lost, is free when its lock ends.
            await self._each(list(self._held.values()), sdk.release)
            await self._receiver.close()

    async def peek(self, numbers: Iterable[int] | None = None) -> AsyncIterator[tuple[DeadLetter, bytes]]:
        """Yield dead letters with their encodings, those that somebody has locked too. Locks none.

        Args:
            numbers: The sequence numbers of those that are asked for; None for all.
        """
        if numbers is not None:
            for number in numbers:
                for letter, encoded in await self._peeked(number, 1):
                    if letter.sequence_number == number:
                        yield letter, encoded
            return
        number = 1
        while page := await self._peeked(number, _PAGE):
            for letter, encoded in page:
                number = max(number, letter.sequence_number + 1)
                yield letter, encoded

    async def _peeked(self, number: int, count: int) -> list[tuple[DeadLetter, bytes]]:
        async with self._turn:
            page = await sdk.peek(self._receiver, number, count)
        return [(read(self.subscription, encoded), encoded) for encoded in page]

    async def receive(self, wanted: Collection[int]) -> AsyncIterator[Locked]:
        """Lock the dead letters of these sequence numbers, in the order in which the queue gives them out.

        It ends when all of them are locked, when the queue has given out nothing new for some seconds (the others
        are gone, or locked by somebody else), and when `HELD` are locked.

        Args:
            wanted: May change meanwhile. One that is wanted and is no longer locked here is received again.
        """
        while len(self._held) < HELD and any(number not in self._held for number in wanted):
            page = await self._page(min(_PAGE, HELD - len(self._held)))
            fresh = [each for each in page if each.letter.sequence_number not in self._held]
            self._held |= {each.letter.sequence_number: each.received for each in page}
            if not fresh:
                return
            for each in fresh:
                if each.letter.sequence_number in wanted:
                    yield each

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
        left = set(wanted)
        async for locked in self.receive(left):
            if await self.complete(locked):
                left.discard(locked.letter.sequence_number)
                yield locked.letter

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
        whole: dict[int, timedelta] = {}
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            for number, message in self._held.items():
                whole.setdefault(number, _left(message))
            due = [each for number, each in self._held.items() if _left(each) < whole[number] / 2]
            async with self._turn:
                await self._each(due, sdk.renew)

    async def _each(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        work: Callable[[ServiceBusReceiver, Sequence[ServiceBusReceivedMessage]], Awaitable[None]],
    ) -> None:
        """Do something with many locks at once; where that fails because of one of them, with each by itself."""
        for batch in batched(messages):
            try:
                await work(self._receiver, batch)
            except (AzureError, OSError, ValueError) as error:
                _log.info("%s of %s locks: %s", work.__name__, len(batch), type(error).__name__)
                for each in batch if isinstance(error, MessageLockLostError) else ():
                    with suppress(MessageLockLostError, ValueError):
                        await work(self._receiver, [each])


def batched(messages: Sequence[ServiceBusReceivedMessage]) -> Iterator[Sequence[ServiceBusReceivedMessage]]:
    """Yield the messages in groups as large as one request can name."""
    for start in range(0, len(messages), _LOCKS):
        yield messages[start : start + _LOCKS]


def _left(message: ServiceBusReceivedMessage) -> timedelta:
    until = message.locked_until_utc
    return timedelta() if until is None else until - datetime.now(UTC)
