"""Handles dead letters where they are: in the dead-letter queue, without publishing them again."""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import insort
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from outbox_relay.inbox.connection import Connections, Entity, check_retries
from outbox_relay.inbox.contents import Contents, on_whole
from outbox_relay.inbox.errors import DeadLetter, LockLost
from outbox_relay.inbox.event_loop import end_tasks, finish, within
from outbox_relay.inbox.lock import Lock, LockedMessage
from outbox_relay.inbox.messages import Handler, call
from outbox_relay.inbox.options import Options
from outbox_relay.inbox.received import Place, places, read, replace_undecodable
from outbox_relay.inbox.telemetry import telemetry_of

HELD = 1_000
"""Maximum number of dead letters that are locked at a time; each lock is renewed by itself."""

_CLOSE_S = 5.0
_LOOK_AGAIN_S = 1.0

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Remainder:
    """A dead letter that is still in the dead-letter queue.

    Attributes:
        key, sequence_number: As of a `Message`.
        why: What kept it.
    """

    key: str
    sequence_number: int
    why: str


@dataclass(slots=True)
class DeadLetterReport:
    """The outcome of a run.

    Attributes:
        handled: Number of dead letters that the handler has taken, and that are removed.
        remainder: Those that are left, in the order of their numbers.
    """

    handled: int = 0
    remainder: list[Remainder] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    place: Place
    received: ServiceBusReceivedMessage
    lock: Lock


class Order:
    """Which dead letter of each key is the next one: the one with the lowest number that is not done."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, list[int]] = defaultdict(list)
        self._done: set[int] = set()

    def learn(self, found: Iterable[Place]) -> None:
        """Replace the known letters by those found. Letters that are done stay done even if still listed."""
        self._numbers.clear()
        for place in found:
            self.add(place)

    def add(self, place: Place) -> None:
        numbers = self._numbers[place.key]
        if place.sequence_number not in self._done and place.sequence_number not in numbers:
            insort(numbers, place.sequence_number)

    def is_next(self, place: Place) -> bool:
        return self._numbers[place.key][:1] == [place.sequence_number]

    def pass_by(self, place: Place) -> None:
        """Let the next one of its key be the next."""
        self._done.add(place.sequence_number)
        self._numbers[place.key] = [each for each in self._numbers[place.key] if each != place.sequence_number]

    def left(self) -> list[Place]:
        """Return the places that are not done."""
        return [Place(number, key) for key, numbers in self._numbers.items() for number in numbers]


class DeadLetterReceiver:
    """Calls `handler` with the dead letters of a queue or a subscription, those of a key in their order.

    The handler is the one of the `Receiver`, and with the same store: what it has handled before is skipped by
    `once`, and an event that comes behind newer ones is `late`. What it does decides:

    - It returns: the dead letter is removed.
    - It raises `DeadLetter`: it stays, and its successors follow.
    - It raises anything else: it stays, and so do its successors of the key, until the next run.
    - The lock is lost while it runs: it is cancelled, and the dead letter comes again.

    Args:
        client: From `inbox.connect`; open.
        handler: As for `Receiver`.
        topic, subscription: The entity whose dead letters to handle; or
        queue: A queue.
        contents: As for `Receiver`.
        options: The fields of `Options`. `prefetch` is the number of dead letters that one request asks for.

    Raises:
        ValueError: As `Receiver`.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        handler: Handler,
        *,
        topic: str | None = None,
        subscription: str | None = None,
        queue: str | None = None,
        contents: Contents | None = None,
        **options: Any,
    ) -> None:
        check_retries(client)
        self._entity = Entity.of(client, topic, subscription, queue)
        telemetry = telemetry_of(self._entity.topic, subscription)
        self._handler = telemetry.observed(on_whole(handler, contents))
        self._options = Options(**options)
        self._stopping = False
        self._order = Order()
        self._held: dict[int, _Held] = {}
        self._kept: dict[int, Remainder] = {}
        self._keys_kept: set[str] = set()
        self._report = DeadLetterReport()
        self._receiver: ServiceBusReceiver
        self._connections: Connections

    async def run(self) -> DeadLetterReport:
        """Handle the dead letters that there are, and return. Run it once.

        Dead letters that nobody handled are free for other receivers when it returns; if the process ends before,
        when their locks end.

        Raises:
            MessagingEntityNotFoundError, ServiceBusAuthenticationError, ServiceBusAuthorizationError: There is no
                such entity, or it may not be received from.
            ServiceBusError, Unanswered: The connection was lost. What was handled is removed; run it again.
        """
        # Without prefetching: the lock of a message that waits in the SDK is renewed by nobody.
        self._receiver = self._entity.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        replace_undecodable(self._receiver)
        self._connections = Connections(self._receiver)
        try:
            await self._answered(self._receiver.__aenter__(), "Opening a dead-letter queue")
            await self._look()
            await self._drain()
        finally:
            await finish(self._close(), within_s=3 * _CLOSE_S)
        self._report.remainder = sorted(self._remainder(), key=lambda each: each.sequence_number)
        return self._report

    def stop(self) -> None:
        """Make `run` return when the handler has finished with its message."""
        self._stopping = True

    async def _drain(self) -> None:
        deadline = time.monotonic() + self._options.accept_s
        while not self._stopping:
            came = await self._receive() if len(self._held) < HELD else False
            handled = await self._handle_next()
            if came or handled:
                deadline = time.monotonic() + self._options.accept_s
                continue
            # What is missing is locked by somebody else, or gone.
            await self._look()
            if any(self._order.is_next(held.place) for held in self._ready()):
                continue
            if not self._missing() or time.monotonic() >= deadline:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _receive(self) -> bool:
        """Lock more dead letters; returns whether there were any."""
        work = self._receiver.receive_messages(
            max_message_count=min(self._options.prefetch, HELD - len(self._held)),
            max_wait_time=self._options.idle_s,
        )
        page = await self._answered(work, "Receiving dead letters", after_s=self._options.idle_s)
        for received in page:
            place = Place(received.sequence_number or 0, received.session_id or "")
            if (before := self._held.pop(place.sequence_number, None)) is not None:
                await before.lock.stop()
            lock = Lock(LockedMessage(self._receiver, received), self._options.renew_s, self._options.answer_s)
            lock.start()
            self._held[place.sequence_number] = _Held(place, received, lock)
            self._order.add(place)
        return bool(page)

    async def _handle_next(self) -> bool:
        """Handle what is next of its key; returns whether anything was."""
        handled = False
        for held in sorted(self._ready(), key=lambda each: each.place.sequence_number):
            if not self._stopping and self._order.is_next(held.place) and held.place.key not in self._keys_kept:
                await self._handle(held)
                handled = True
        return handled

    async def _handle(self, held: _Held) -> None:
        place, received = held.place, held.received
        try:
            message = read(received, self._entity.topic, self._entity.subscription)
            await held.lock.during(call(self._handler, message))
        except DeadLetter as poison:
            _log.error("A dead letter of %s stays, %s: %s", self._entity.name, place, poison)
            self._keep(place, str(poison))
            self._order.pass_by(place)
        except LockLost:
            del self._held[place.sequence_number]
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            _log.exception("The handler of a dead letter of %s failed, %s", self._entity.name, place)
            self._keep(place, f"the handler failed: {type(error).__name__}")
            self._keys_kept.add(place.key)
        else:
            await finish(self._complete(held))

    async def _complete(self, held: _Held) -> None:
        del self._held[held.place.sequence_number]
        await held.lock.stop()
        try:
            await self._answered(self._receiver.complete_message(held.received), "Completing a dead letter")
        except MessageLockLostError:
            _log.info("The lock of %s was lost before it was completed: it comes again", held.place)
            return
        self._order.pass_by(held.place)
        self._report.handled += 1

    def _keep(self, place: Place, why: str) -> None:
        self._kept[place.sequence_number] = Remainder(place.key, place.sequence_number, why)

    def _ready(self) -> list[_Held]:
        """Return the messages that are locked here and have not been tried."""
        return [held for number, held in self._held.items() if number not in self._kept]

    def _missing(self) -> bool:
        """Return True if a message that could be handled is locked by another receiver."""
        return any(
            place.sequence_number not in self._held and place.key not in self._keys_kept
            for place in self._order.left()
        )

    def _remainder(self) -> Iterable[Remainder]:
        yield from self._kept.values()
        for place in self._order.left():
            if place.sequence_number not in self._kept:
                yield Remainder(place.key, place.sequence_number, self._why(place))

    def _why(self, place: Place) -> str:
        if place.key in self._keys_kept or not self._order.is_next(place):
            return "an earlier one of its key stays"
        if self._stopping:
            return "the receiver was stopped"
        return "another receiver has locked it" if len(self._held) < HELD else f"{HELD} others are before it"

    async def _look(self) -> None:
        """Peek which dead letters there are: those that somebody has locked come before their successors too."""

        async def found() -> list[Place]:
            return [place async for place in places(self._receiver)]

        self._order.learn(await self._answered(found(), "Peeking dead letters"))

    async def _answered(self, work: Coroutine[Any, Any, T], what: str, *, after_s: float = 0.0) -> T:
        return await within(after_s + self._options.answer_s, work, what, connections=self._connections)

    async def _close(self) -> None:
        """Release what is locked, and close the connection."""
        held, self._held = list(self._held.values()), {}
        await end_tasks(filter(None, [each.lock.renewing for each in held]))
        try:
            await within(_CLOSE_S, self._abandon(held), "Releasing dead letters", connections=self._connections)
            await within(_CLOSE_S, self._receiver.close(), "Closing a queue", connections=self._connections)
        except Exception as error:  # noqa: BLE001 - the broker frees them in any case, when their locks end
            _log.debug("Closing a dead-letter queue failed: %s", type(error).__name__)
        finally:
            self._connections.discard()

    async def _abandon(self, held: Iterable[_Held]) -> None:
        for each in held:
            try:
                await self._receiver.abandon_message(each.received)
            except (ServiceBusError, ValueError) as error:
                _log.debug("A dead letter was not released: %s", type(error).__name__)
