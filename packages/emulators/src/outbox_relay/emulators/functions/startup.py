"""Starting a function's listener, with retries while Cosmos DB does not answer.

As FunctionListener of Azure/azure-webjobs-sdk does around CosmosDBTriggerListener. The host runs in either case.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from azure.core.exceptions import AzureError
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from outbox_relay.emulators.functions.errors import ContainerMissing, HostError, UnableToStart, describe
from outbox_relay.emulators.functions.pause import pause
from outbox_relay.emulators.functions.retries import UNLIMITED, RetryPolicy
from outbox_relay.emulators.functions.status import UNABLE, FunctionStatus

MINIMUM_RETRY_S = 2.0
MAXIMUM_RETRY_S = 120.0
_USED_UP = (
    "This builder instance has already been used to build a processor. Create a new instance to build another."
)

logger = logging.getLogger(__name__)


class Startup:
    """Runs `attempt` until it succeeds, `stopping` is set, or it can never succeed.

    `settled` is set at the end of the first attempt, or earlier by an attempt that will take longer.
    `minimum_retry_s` is the first wait before another attempt.
    """

    def __init__(
        self,
        attempt: Callable[[], Awaitable[None]],
        *,
        minimum_retry_s: float,
        stopping: asyncio.Event,
        status: FunctionStatus,
    ) -> None:
        self.settled = asyncio.Event()
        self._attempt = attempt
        self._stopping = stopping
        self._status = status
        # RandomizedExponentialBackoffStrategy, as in retry policies.
        policy = RetryPolicy(UNLIMITED, minimum_retry_s, max(minimum_retry_s, MAXIMUM_RETRY_S))
        self._delays = policy.delays(random.Random())

    async def run(self) -> None:
        """Start the functions. Raises HostError if the app or its settings must be changed."""
        try:
            while not self._stopping.is_set():
                try:
                    await self._attempt()
                    return
                except ContainerMissing as error:
                    self._unable(str(error))
                    await self._never()
                except CosmosResourceNotFoundError as error:
                    self._unable(f"a container does not exist: {describe(error)}")
                    await self._never()
                except UnableToStart as error:
                    self._unable(str(error))
                except AzureError as error:
                    self._unable(describe(error))
                self.settled.set()
                await pause(next(self._delays), until=self._stopping)
        finally:
            self.settled.set()

    async def _never(self) -> None:
        """Retry in vain, even when the containers exist by now.

        After a 404, CosmosDBTriggerListener discards its processor, and builds another from a builder that can be
        used only once.
        """
        self.settled.set()
        while not await pause(next(self._delays), until=self._stopping):
            self._unable(f"{_USED_UP} Restart the host once both containers exist.")

    def _unable(self, why: str) -> None:
        self._status.last_error = f"{UNABLE}: {why}"
        logger.error("The listener for function 'Functions.%s' was unable to start. %s", self._status.name, why)


def as_host_error(task: asyncio.Task[None]) -> HostError | None:
    """Return the error of a startup that cannot succeed.

    It is None while it is under way, or if it has succeeded.
    """
    if not task.done() or task.cancelled():
        return None
    error = task.exception()
    if error is not None and not isinstance(error, HostError):
        raise error
    return error
