"""Receives one session of a subscription or a queue, and touches no other session."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusReceiver
from azure.servicebus.exceptions import SessionLockLostError

from outbox_relay.operator.cli.servicebus_checks import cannot_list, read_servicebus, receiving_refused
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from relay.backends.findings import Gap
from relay.config.clients import ManagementAddress, servicebus_client
from relay.config.settings import Settings
from relay.core.errors import ServiceError, UsageError
from relay.servicebus.refusals import classify

# The lock of a session is renewed for this much longer than the wait for its message.
_RENEWAL_MARGIN_S = 60.0

# One call of the SDK; the deadline is checked between calls.
_RECEIVE_S = 5.0


async def choose(settings: Settings, wanted: str | None, administration: ManagementAddress | None) -> str:
    """Choose the subscription to receive from: `wanted`, or the topic's only one; of a queue, its own name.

    Raises:
        UsageError: None is wanted, and the topic has several or none, or they cannot be listed; or one of a queue.
        ServiceError: Service Bus cannot be reached.
    """
    if settings.servicebus.is_queue:
        if wanted is not None:
            raise UsageError(f"--subscription: {settings.servicebus.destination} has none: leave it out")
        return settings.servicebus.entity
    if wanted is not None:
        return wanted
    found = (await read_servicebus(settings, administration)).subscriptions
    topic = settings.servicebus.entity
    if isinstance(found, Gap):
        raise cannot_list(settings, found)
    if len(found) != 1:
        names = ", ".join(repr(subscription.name) for subscription in found) or "none"
        raise UsageError(f"give --subscription NAME: the subscriptions of '{topic}' are {names}")
    return found[0].name


class Session:
    """A locked session, which is locked again when its lock is lost."""

    def __init__(self, lock: Callable[[], Awaitable[ServiceBusReceiver]]) -> None:
        self._lock = lock
        self._receiver: ServiceBusReceiver | None = None

    async def receive(self, within_s: float) -> ServiceBusReceivedMessage | None:
        """Receive the next message and complete it, or return None if none arrives within `within_s` seconds.

        Raises:
            UsageError: The session had to be locked again, and the subscription has changed.
            ServiceError: The connection was lost, or another receiver has the session.
        """
        deadline = time.monotonic() + within_s
        while (left := deadline - time.monotonic()) > 0:
            receiver = await self.locked()
            try:
                for message in await receiver.receive_messages(1, max_wait_time=min(left, _RECEIVE_S)):
                    await receiver.complete_message(message)
                    return message
            except SessionLockLostError:
                # A message that was completed too late is delivered again.
                self._receiver = None
                await receiver.close()
            except (AzureError, OSError) as error:
                raise ServiceError(f"the subscription could not be received from: {classify(error)}") from error
        return None

    async def locked(self) -> ServiceBusReceiver:
        """Return the receiver that holds the lock. Raises what `lock` raises."""
        if self._receiver is None:
            self._receiver = await self._lock()
        return self._receiver

    async def close(self) -> None:
        if self._receiver is not None:
            await self._receiver.close()


@asynccontextmanager
async def open_session(
    settings: Settings, subscription: str, session_id: str, hold_s: float
) -> AsyncIterator[Session]:
    """Lock a session, with or without messages, for at least `hold_s` seconds.

    Raises:
        UsageError: There is no such subscription or queue, or it does not require sessions.
        ServiceError: Service Bus cannot be reached, or refuses.
    """
    outlet = ReceivingEntity.of(settings, subscription)
    async with servicebus_client(settings.servicebus.connection) as client, AutoLockRenewer() as renewer:

        async def lock() -> ServiceBusReceiver:
            # Without prefetch the SDK (7.15.0) releases what arrives between two calls.
            receiver = outlet.receiver(client, session_id=session_id, prefetch_count=10)
            try:
                await receiver.__aenter__()
            except (AzureError, OSError) as error:
                await receiver.close()
                raise receiving_refused(error, settings, subscription) from error
            renewer.register(receiver, receiver.session, max_lock_renewal_duration=hold_s + _RENEWAL_MARGIN_S)
            return receiver

        session = Session(lock)
        await session.locked()
        try:
            yield session
        finally:
            await session.close()
