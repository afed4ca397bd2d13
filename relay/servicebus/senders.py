"""The choice of senders: the pipelined one, or the pool that replaces it."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from relay.config.clients import servicebus_client
from relay.config.settings import ServiceBusSettings
from relay.servicebus.pool import SenderPool
from relay.servicebus.transfers import Sender

if TYPE_CHECKING:
    from relay.servicebus.pipelined.lanes import PipelinedSenders

# Partition keys that send at a time. In the pool, each is a connection, of which a namespace takes some thousands.
_POOLED = 32

logger = logging.getLogger(__name__)


class Senders(Protocol):
    """Senders to one topic."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def size(self) -> int:
        """Maximum number of partition keys that send at a time."""

    def acquire(self) -> AbstractAsyncContextManager[Sender]:
        """Return a sender for one partition key's turn; waits if none is free."""

    async def close(self) -> None:
        """Close every link that is not in use."""


def differences() -> list[str]:
    """List the ways in which the installed SDK differs from the one tested with the pipelined sender.

    It is empty if it does not.
    """
    try:
        # With another version of the SDK, not even this may be possible.
        from relay.servicebus.pipelined import sdk
    except (ImportError, AttributeError) as error:
        return [f"azure-servicebus is another one than was tested: {error}"]
    return sdk.differences()


def senders(settings: ServiceBusSettings) -> Senders:
    """Return the senders that the settings ask for. They connect at the first send.

    If the pipelined sender was not tested with the installed SDK, they are the pool's.
    """
    # No retries within the SDK: it would send again on a link that it has opened on its own.
    client = servicebus_client(settings.connection, retry_total=0)
    topic = settings.entity
    pool = SenderPool(client, topic, settings.senders or _POOLED)
    if not settings.pipelined:
        return pool
    if found := differences():
        _warn("; ".join(found))
        return pool
    from relay.servicebus.pipelined import lanes, outgoing

    return _WithFallback(lanes.PipelinedSenders(client, topic, settings.senders or outgoing.IN_FLIGHT), pool)


class _WithFallback:
    """The pipelined sender, until the SDK's inside turns out to be another one when a link is opened.

    That attempt fails, and the next one sends through the pool.
    """

    def __init__(self, pipelined: PipelinedSenders, pool: SenderPool) -> None:
        self._pipelined = pipelined
        self._pool = pool
        self._has_fallen_back = False

    @property
    def _used(self) -> Senders:
        return self._pipelined if self._pipelined.different_sdk is None else self._pool

    @property
    def topic(self) -> str:
        return self._used.topic

    @property
    def size(self) -> int:
        return self._used.size

    def acquire(self) -> AbstractAsyncContextManager[Sender]:
        if (why := self._pipelined.different_sdk) is not None and not self._has_fallen_back:
            self._has_fallen_back = True
            _warn(why)
        return self._used.acquire()

    async def close(self) -> None:
        await self._pipelined.close()
        await self._pool.close()


def _warn(why: str) -> None:
    logger.warning("RELAY_PIPELINED has no effect, and the pool of senders is used: %s", why)
