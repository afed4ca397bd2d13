"""One session, from when it is accepted to when it is released, and the completions of its messages in groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from outbox_relay.inbox.connection import Connections
from outbox_relay.inbox.errors import DeadLetter, LockLost, NotFetched
from outbox_relay.inbox.event_loop import end_tasks, finish, within
from outbox_relay.inbox.key_parker import KeyParker, NotKept, log_failure
from outbox_relay.inbox.lock import Lock
from outbox_relay.inbox.messages import Handler, call
from outbox_relay.inbox.options import Options
from outbox_relay.inbox.parking import Parking
from outbox_relay.inbox.received import place_of, read, replace_undecodable
from outbox_relay.inbox.telemetry import Telemetry

_GATHER_S = 0.05


class Answered(Protocol):
    """Awaits an answer of the broker, for a limited time."""

    async def __call__(self, work: Coroutine[Any, Any, None], what: str, /) -> None: ...


class Completions:
    """The completions of one session, in order. Nobody else may read from its link while some are under way.

    A message is completed soon after it was added, together with those that were added meanwhile; at once if `all`
    is called.

    Args:
        receiver: Of the session; open.
        answered: Limits the time of each request.
    """

    def __init__(self, receiver: ServiceBusReceiver, answered: Answered) -> None:
        self._receiver = receiver
        self._answered = answered
        self._waiting: list[ServiceBusReceivedMessage] = []
        self._completing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def add(self, received: ServiceBusReceivedMessage) -> None:
        """Complete a message soon. Raises as `check`."""
        self.check()
        self._waiting.append(received)
        if self._completing is None:
            self._completing = asyncio.create_task(self._complete())

    def check(self) -> None:
        """Raise the error with which an earlier completion has failed: the session is lost."""
        if self._completing is not None and self._completing.done():
            self._completing.result()
            self._completing = None

    async def all(self) -> None:
        """Wait until everything added is completed.

        Raises:
            Exception: As `check`.
        """
        if self._completing is None:
            return
        self._hurry.set()
        try:
            await asyncio.wait({self._completing})
        finally:
            self._hurry.clear()
        self.check()

    async def stop(self) -> None:
        """Give up what is under way."""
        if self._completing is not None:
            await end_tasks([self._completing])

    async def _complete(self) -> None:
        while self._waiting:
            if not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GATHER_S):
                        await self._hurry.wait()
            group, self._waiting = self._waiting, []
            await self._answered(_complete(self._receiver, group), "Completing messages")


def arrived(receiver: Any) -> int:
    """Return the number of messages that the SDK has read from the connection and not handed out."""
    client = receiver._handler
    return 0 if client is None else int(client._received_messages.qsize())


async def _complete(receiver: ServiceBusReceiver, group: Sequence[ServiceBusReceivedMessage]) -> None:
    for run in _runs(group):
        if len(run) == 1:
            await receiver.complete_message(run[0])
        else:
            await _complete_run(receiver, run)


def _runs(group: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the messages in groups, divided where their deliveries do not follow each other on the link."""
    run = [group[0]]
    for each in group[1:]:
        if each._delivery_id != run[-1]._delivery_id + 1:
            yield run
            run = []
        run.append(each)
    yield run


async def _complete_run(receiver: Any, run: Sequence[Any]) -> None:
    """Complete several messages at a time, where `ServiceBusReceiver.complete_message` completes one.

    Without its second attempt on the management link: if the first one fails, the session is lost.
    """
    receiver._check_live()
    client, last = receiver._handler, run[-1]
    deliveries = run[0]._delivery_id, last._delivery_id
    settle = partial(client.settle_messages_async, deliveries, last._delivery_tag, "accepted", await_outcome=True)
    await receiver._do_retryable_operation(settle)
    # The SDK itself forgets only the last one.
    client._link._received_delivery_tags.difference_update(each._delivery_tag for each in run)


CLOSE_S = 5.0
"""Maximum seconds in which what was handled is completed, and in which the session is released."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that was not handled.

    Attributes:
        received: The message.
        pause_s: The pause before it may be delivered again, in seconds.
        counts: Whether it counts as a failed delivery.
    """

    received: ServiceBusReceivedMessage
    pause_s: float
    counts: bool = True


class Session:
    """Handles the messages of the session that an SDK receiver accepts.

    Every method except `close` may raise any error of the SDK, or `Unanswered`; the session is then lost, and
    unsettled messages are delivered again.

    Args:
        receiver: Not open yet.
        topic: The topic, or the queue, that it receives from.
        subscription: The subscription of the topic; "" for a queue.
        handler: Called with each message.
        options: How to receive.
        telemetry: Where it is reported.
        parking: Where to park its key because of a message that cannot be handled, instead of dead-lettering it.
    """

    def __init__(
        self,
        receiver: ServiceBusReceiver,
        topic: str,
        subscription: str,
        handler: Handler,
        options: Options,
        telemetry: Telemetry,
        parking: Parking | None = None,
    ) -> None:
        replace_undecodable(receiver)
        self._receiver = receiver
        self._topic = topic
        self._subscription = subscription
        self._connections = Connections(receiver)
        self._handler = handler
        self._options = options
        self._telemetry = telemetry
        self._aside = None if parking is None else KeyParker(parking, options, telemetry)
        self._lock: Lock | None = None
        self._completions = Completions(receiver, self._answered)

    async def accept(self) -> None:
        """Wait for a session with messages, and lock it.

        Raises:
            OperationTimeoutError: No session had messages in time.
            Unanswered: The broker did not answer at all.
        """
        # Not `async with receiver`, which does not close it when cancelled here: the broker would give the next
        # session to a link without a reader.
        await self._answered(self._receiver.__aenter__(), "Accepting a session", after_s=self._options.accept_s)
        self._lock = Lock(self._receiver.session, self._options.renew_s, self._options.answer_s)
        self._lock.start()
        self._telemetry.held(1)

    @property
    def renewed_within_s(self) -> float:
        """Seconds within which its lock has to be renewed."""
        return self._held.renewed_within_s

    async def handle(self, stopping: asyncio.Event) -> Failed | None:
        """Handle messages until there are none, the session's time is over, the receiver stops, or one fails.

        Returns:
            The message that failed. Its successors, which were received with it, must not be handled before it:
            pass it to `retry`.
        """
        try:
            failed = await self._handle_all(stopping)
        except BaseException:
            await finish(self._give_up())
            raise
        await finish(self._completions.all())
        return failed

    async def _handle_all(self, stopping: asyncio.Event) -> Failed | None:
        deadline = time.monotonic() + self._options.hold_s
        while messages := await self._receive():
            for received in messages:
                if stopping.is_set():
                    return None
                if (failed := await self._settle(received)) is not None:
                    return failed
                if time.monotonic() >= deadline:
                    # Prefetched messages are released with the session, in order, and not counted as deliveries.
                    return None
        return None

    async def retry(self, failed: Failed, stopping: asyncio.Event) -> None:
        """Hold the session for the pause, then abandon the message, so that it is delivered again.

        A delivery that does not count ends with the session instead. Otherwise the broker would dead-letter the
        message while the store, or the content of a large event, is away, and its successors would follow.
        """
        await self._held.pause(failed.pause_s, stopping)
        if failed.counts:
            await finish(self._answered(self._receiver.abandon_message(failed.received), "Abandoning a message"))

    async def close(self) -> None:
        """Release the session, within a few seconds."""
        if self._lock is not None:
            self._telemetry.held(-1)
            await self._lock.stop()
        try:
            await within(CLOSE_S, self._receiver.close(), "Closing a session", connections=self._connections)
        except Exception as error:  # noqa: BLE001 - the broker frees the session in any case
            _log.debug("Closing a session failed: %s", type(error).__name__)
        finally:
            self._connections.discard()

    async def _give_up(self) -> None:
        """Complete what was handled, if that is possible soon: otherwise it is delivered again."""
        try:
            await within(CLOSE_S, self._completions.all(), "Completing messages", connections=self._connections)
        except Exception as error:  # noqa: BLE001 - why the session ends is raised already
            _log.debug("Completing the last messages failed: %s", type(error).__name__)
        finally:
            await self._completions.stop()

    async def _receive(self) -> list[ServiceBusReceivedMessage]:
        """Return the messages that have arrived; if there are none, wait for the next one, for a limited time."""
        if not (count := arrived(self._receiver)):
            await self._completions.all()
            count = arrived(self._receiver)
        idle_s = self._options.idle_s
        # For more than have arrived, the SDK (7.15.0) waits 0.2 s after the first.
        work = self._receiver.receive_messages(max_message_count=max(1, count), max_wait_time=idle_s)
        if count:
            return await work
        return await self._answered(work, "Receiving messages", after_s=idle_s)

    async def _answered(self, work: Coroutine[Any, Any, T], what: str, *, after_s: float = 0.0) -> T:
        """Await an answer. Discard the connection if there is none `answer_s` seconds after `after_s`."""
        return await within(after_s + self._options.answer_s, work, what, connections=self._connections)

    async def _settle(self, received: ServiceBusReceivedMessage) -> Failed | None:
        """Handle one message, or set it aside, and settle it. Returns it if that failed."""
        deliveries = received.delivery_count or 0
        self._completions.check()
        try:
            await self._held.during(self._handle(received))
        except DeadLetter as poison:
            _log.error(
                "Dead-lettering message %r of session %r: %s", received.message_id, received.session_id, poison
            )
            self._telemetry.dead_lettered(poison.reason)
            await self._completions.all()
            work = self._receiver.dead_letter_message(
                received, reason=poison.reason, error_description=poison.description
            )
            await finish(self._answered(work, "Dead-lettering a message"))
        except LockLost:
            raise
        except (NotKept, NotFetched):
            return Failed(received, self._options.pause_s(deliveries), counts=False)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; it must not stop the receiver
            log_failure(received.message_id, received.session_id, deliveries + 1, error)
            return Failed(received, self._options.pause_s(deliveries))
        else:
            self._completions.add(received)
        return None

    async def _handle(self, received: ServiceBusReceivedMessage) -> None:
        """Call the handler with a message, or set the message aside.

        Raises:
            NotKept, NotFetched: It has to wait.
            Exception: As the handler.
        """
        try:
            message = read(received, self._topic, self._subscription)
        except DeadLetter as unreadable:
            place = place_of(received, self._topic, self._subscription)
            if self._aside is not None and place is not None:
                await self._aside.leave(place, unreadable)
            raise
        if self._aside is None:
            await call(self._handler, message)
        else:
            await self._aside.handle(message, self._handler)

    @property
    def _held(self) -> Lock:
        if self._lock is None:
            raise RuntimeError("The session was not accepted.")
        return self._lock
