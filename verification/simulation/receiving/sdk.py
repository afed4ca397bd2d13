"""The part of azure-servicebus that `inbox` uses.

It is a client whose receivers accept sessions of a simulated subscription.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)

from verification.simulation.channel import RpcChannel
from verification.simulation.receiving.connection import Connection
from verification.simulation.receiving.subscription import LockLostError, Session, Stored, Subscription
from verification.simulation.world import EPOCH, Process

UNREADABLE = "unreadable"
"""The property of a message whose body is not what a handler can be given."""


class SimulatedClient:
    """A `ServiceBusClient` of one process, for one subscription."""

    def __init__(self, process: Process, line: RpcChannel, subscription: Subscription) -> None:
        self._process = process
        self._line = line
        self._subscription = subscription

    def get_subscription_receiver(
        self,
        *,
        topic_name: str,
        subscription_name: str,
        session_id: Any,
        max_wait_time: float,
        prefetch_count: int,
    ) -> SimulatedReceiver:
        """Return a receiver of the next session; not open yet."""
        return SimulatedReceiver(self._process, self._line, self._subscription, max_wait_time, prefetch_count)


@dataclass(slots=True)
class ReceivedMessage:
    """A delivery, with what `inbox.received` reads of one."""

    sequence_number: int
    message_id: str
    session_id: str
    subject: str
    body: list[bytes]
    application_properties: dict[bytes, Any]
    delivery_count: int
    enqueued_time_utc: datetime
    _delivery_id: int
    body_type: AmqpMessageBodyType

    @property
    def _delivery_tag(self) -> int:
        return self._delivery_id

    @classmethod
    def of(cls, stored: Stored, delivery_id: int) -> ReceivedMessage:
        """Return a delivery of a message as it is now."""
        message = stored.message
        properties = {
            name.encode(): value.encode() if isinstance(value, str) else value
            for name, value in message.application_properties.items()
        }
        return cls(
            stored.number,
            message.id,
            message.partition_key,
            message.subject,
            [message.body],
            properties,
            stored.failed,
            datetime.fromtimestamp(EPOCH + stored.enqueued_at, UTC),
            delivery_id,
            AmqpMessageBodyType.VALUE
            if UNREADABLE in message.application_properties
            else AmqpMessageBodyType.DATA,
        )


class BrokerLink:
    """The broker's end of a receiver: a `verification.simulation.receiving.subscription.Link`."""

    def __init__(self, receiver: SimulatedReceiver, credit: int) -> None:
        self.credit = credit
        self.receiver = receiver
        self.session: Session | None = None
        self.deliveries: list[int] = []
        """The broker's number of each message that was delivered, in order."""

    def granted(self, session: Session) -> None:
        self.session = session
        self.receiver.connection.down(partial(self.receiver.accepted, session.key, session.until))

    def deliver(self, stored: Stored) -> None:
        received = ReceivedMessage.of(stored, len(self.deliveries))
        self.deliveries.append(stored.number)
        self.receiver.connection.down(partial(self.receiver.delivered, received))

    def timed_out(self) -> None:
        error = OperationTimeoutError(message="No session was available.")
        self.receiver.connection.down(partial(self.receiver.fail, error))

    def lost(self) -> None:
        self.receiver.connection.down(partial(self.receiver.fail, _lock_lost()))


class SimulatedSession:
    """A `ServiceBusSession`: the lock."""

    def __init__(self, receiver: SimulatedReceiver) -> None:
        self._receiver = receiver
        self.key = ""
        self.locked_until_utc: datetime | None = None

    async def renew_lock(self) -> datetime:
        """Extend the lock. Raises SessionLockLostError, and the connection's error."""
        self.locked_until_utc = _moment(await self._receiver.ask(self._receiver.subscription.renew))
        return self.locked_until_utc


class SimulatedReceiver:
    """A `ServiceBusReceiver` with sessions and prefetching. Its errors are those of 7.15.0.

    Attributes:
        session: Its session, once it is open.
        connection: Its own.
    """

    def __init__(
        self, process: Process, line: RpcChannel, subscription: Subscription, max_wait_s: float, prefetch: int
    ) -> None:
        self.process = process
        self.subscription = subscription
        self.session = SimulatedSession(self)
        self.connection = Connection(line, process, self._lost, self._ended)
        self.link = BrokerLink(self, prefetch + 1)
        self._max_wait_s = max_wait_s
        self._buffer: deque[ReceivedMessage] = deque()
        self._error: ServiceBusError | None = None
        self._is_useless = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._arrived: asyncio.Future[None] | None = None
        self._accepted: asyncio.Future[None] = process.loop.create_future()
        # What `inbox.connection.Connections` finds, to close the socket, and `inbox.session`.
        socket = SimpleNamespace(transport=SimpleNamespace(abort=self.connection.abort))
        self._handler = SimpleNamespace(
            _connection=SimpleNamespace(_transport=SimpleNamespace(writer=socket)),
            _link=SimpleNamespace(_received_delivery_tags=set()),
            _received_messages=SimpleNamespace(qsize=lambda: len(self._buffer)),
            settle_messages_async=self._complete_range,
        )

    def _create_handler(self, auth: Any) -> None:
        """Create nothing: `inbox.received` wraps this method, and nothing is encoded here."""

    async def __aenter__(self) -> SimulatedReceiver:
        self.connection.up(lambda: self.subscription.accept_next(self.link, self._max_wait_s))
        await self._outcome(self._accepted)
        return self

    async def receive_messages(self, max_message_count: int, max_wait_time: float) -> list[ReceivedMessage]:
        """Return the messages that were prefetched, or that come first within some time."""
        self._check_live()
        if len(self._buffer) < max_message_count:
            self._check_link()
        if not self._buffer:
            self._arrived = self.process.loop.create_future()
            await asyncio.wait({self._arrived}, timeout=max_wait_time)
            if not self._buffer:
                self._check_link()
        return [self._buffer.popleft() for _ in range(min(max_message_count, len(self._buffer)))]

    async def complete_message(self, received: ReceivedMessage) -> None:
        """Settle a message; awaits the broker's answer, as all settlements."""
        await self.ask(self.subscription.complete, received.sequence_number)

    async def _complete_range(
        self, deliveries: tuple[int, int], tag: int, outcome: str, *, await_outcome: bool
    ) -> None:
        assert (tag, outcome, await_outcome) == (deliveries[1], "accepted", True)
        first, last = deliveries
        await self.ask(self.subscription.complete, *self.link.deliveries[first : last + 1])

    async def _do_retryable_operation(self, operation: Callable[[], Awaitable[None]]) -> None:
        await operation()

    async def abandon_message(self, received: ReceivedMessage) -> None:
        await self.ask(self.subscription.abandon, received.sequence_number)

    async def dead_letter_message(self, received: ReceivedMessage, reason: str, error_description: str) -> None:
        await self.ask(self.subscription.dead_letter, received.sequence_number, reason)

    async def close(self) -> None:
        """End the link, and await that the broker confirms it, however long that takes."""
        if self._error is None:
            answer: asyncio.Future[None] = self.process.loop.create_future()
            self.connection.up(partial(self._detach, answer))
            await self._outcome(answer)
        self.connection.abort()

    def _detach(self, answer: asyncio.Future[None]) -> None:
        self.subscription.leave(self.link)
        self.connection.down(partial(_settle, answer, None, None))

    async def ask(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Let the broker do something with the session. Raises its error, or that of the connection."""
        self._check_live()
        self._check_link()
        answer: asyncio.Future[Any] = self.process.loop.create_future()

        def carry_out() -> None:
            try:
                result = operation(self.link.session, self.link, *arguments)
            except LockLostError:
                self.connection.down(partial(_settle, answer, None, _lock_lost()))
            else:
                self.connection.down(partial(_settle, answer, result, None))

        self.connection.up(carry_out)
        return await self._outcome(answer)

    async def _outcome(self, answer: asyncio.Future[Any]) -> Any:
        self._waiting.add(answer)
        try:
            return await answer
        except ServiceBusConnectionError:
            self._is_useless = True
            raise
        finally:
            self._waiting.discard(answer)

    def _check_live(self) -> None:
        """Raise an error as `ServiceBusReceiver._check_live` does.

        A session receiver ends with its connection, and with its time.
        """
        until = self.session.locked_until_utc
        if self._is_useless or (until is not None and until <= datetime.now(UTC)):
            raise _lock_lost()

    def _check_link(self) -> None:
        if self._error is not None:
            self._is_useless = True
            raise self._error

    # What comes from the broker, in this process.

    def accepted(self, key: str, until: float) -> None:
        """Note that a session is locked."""
        self.session.key = key
        self.session.locked_until_utc = _moment(until)
        _settle(self._accepted, None, None)

    def delivered(self, message: ReceivedMessage) -> None:
        """Take a message that has arrived."""
        self._buffer.append(message)
        self._wake()

    def fail(self, error: ServiceBusError) -> None:
        """End the link; nobody gets another answer."""
        self._error = self._error or error
        for answer in list(self._waiting):
            _settle(answer, None, error)
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None:
            _settle(self._arrived, None, None)

    def _lost(self) -> None:
        self.fail(ServiceBusConnectionError(message="The connection was lost."))

    def _ended(self) -> None:
        self.subscription.leave(self.link)


def _moment(until: float) -> datetime:
    return datetime.fromtimestamp(EPOCH + until, UTC)


def _lock_lost() -> ServiceBusError:
    return SessionLockLostError(message="The session lock was lost. Request a new session receiver.")


def _settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
