"""Looks for copies in a subscription or a queue, and keeps its consumers from them until they are seen."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import SessionCannotBeLockedError

from outbox_relay.operator.deadletters import sdk
from outbox_relay.operator.deadletters.letter import read
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from relay.servicebus.refusals import amqp_condition

_PAGE = 100
_AGAIN_S = 0.5
_LOOK_EVERY_S = 0.1
# Maximum seconds until a copy that was accepted is in the subscriptions.
SEEN_WITHIN_S = 10.0
_RENEW_FOR_S = 3_600.0


class SessionBusyError(Exception):
    """A consumer holds the session, and has not released it in time."""


class Lookout:
    """Holds a session of a subscription, so that no consumer has a copy before it was seen. Use `async with`.

    Where a subscription does not require sessions, nothing can be held: a consumer may be faster, and the copy is
    not seen.

    Every method may raise an error of the SDK.
    """

    def __init__(self, client: ServiceBusClient, outlet: ReceivingEntity, session_id: str | None) -> None:
        """Create a lookout; `client` makes no retries."""
        self._outlet = outlet
        self._client = client
        self._session_id = session_id
        self._receiver: ServiceBusReceiver | None = None
        self._renewer = AutoLockRenewer()
        self._next = 1
        self._ids: set[str | None] = set()

    async def hold(self, wait_s: float, behind: int) -> None:
        """Lock the session, and look what waits in it.

        Args:
            wait_s: Maximum seconds until its consumer releases it.
            behind: The sequence number of the first dead letter: its copies have higher ones.

        Raises:
            SessionBusyError: It was not released.
        """
        self._next = behind + 1
        deadline = time.monotonic() + wait_s
        while True:
            try:
                self._receiver = await self._open(self._session_id)
                break
            except SessionCannotBeLockedError as error:
                if time.monotonic() >= deadline:
                    raise SessionBusyError from error
                await asyncio.sleep(_AGAIN_S)
        await self._look()

    def waits(self, identifier: str) -> bool:
        """Return True if a message of this id was seen."""
        return identifier in self._ids

    async def sees(self, identifier: str) -> bool:
        """Return True if a message of this id comes in time."""
        deadline = time.monotonic() + SEEN_WITHIN_S
        while True:
            await self._look()
            if self.waits(identifier) or time.monotonic() >= deadline:
                return self.waits(identifier)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def close(self) -> None:
        await self._renewer.close()
        if self._receiver is not None:
            await self._receiver.close()

    async def __aenter__(self) -> Lookout:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self, session_id: str | None) -> ServiceBusReceiver:
        receiver = self._outlet.receiver(self._client, session_id=session_id)
        try:
            await receiver.__aenter__()
        except Exception as error:
            await receiver.close()
            if session_id is not None and amqp_condition(error) == "amqp:not-allowed":
                return await self._open(None)
            raise
        if session_id is not None:
            self._renewer.register(receiver, receiver.session, max_lock_renewal_duration=_RENEW_FOR_S)
        return receiver

    async def _look(self) -> None:
        assert self._receiver is not None, "hold comes first"
        while page := await sdk.peek(self._receiver, self._next, _PAGE):
            for encoded in page:
                message = read(self._outlet.name, encoded)
                self._next = max(self._next, message.sequence_number + 1)
                self._ids.add(message.id)
