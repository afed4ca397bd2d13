"""The containers of the outbox's database, over one client that is made when the first of them is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from relay.backends.cosmos.leases import Positions, read_positions
from relay.config.clients import cosmos_client
from relay.config.settings import CosmosSettings
from relay.core.errors import LeaseError, RelayError, ServiceError, first_line

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, CosmosClient, DatabaseProxy

CALL_TIMEOUT_S = 10.0
"""Seconds after which a call to Cosmos DB without an answer is cut off; the SDK's own retries take minutes."""

# Seconds that closing a client may take.
_CLOSE_TIMEOUT_S = 5.0


@dataclass(slots=True, eq=False)
class _Shared:
    """A client that is open. One that was discarded is closed when its last call has ended."""

    client: CosmosClient
    calls: int = 0
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call, which may consist of several requests.

    Attributes:
        container: The container of a name, to be used within the call.
        answered: Called when the service has answered: its next answer has the whole time again.
    """

    container: Callable[[str], ContainerProxy]
    answered: Callable[[], None]


class Containers:
    """Containers of a Cosmos DB account. Create one per process; it connects on first use."""

    def __init__(self, settings: CosmosSettings, *, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Create the containers; `call_timeout_s`: seconds after which a call without an answer is cut off."""
        self.quarantine_name = settings.quarantine_container
        self._settings = settings
        self._call_timeout_s = call_timeout_s
        self._opening = asyncio.Lock()
        self._shared: _Shared | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, name: str) -> ContainerProxy:
        """Return the container of this name; its requests have no limit. Raises AzureError or OSError."""
        return (await self.database()).get_container_client(name)

    async def database(self) -> DatabaseProxy:
        """Return the database; its requests have no limit. Raises AzureError or OSError."""
        async with self._limited():
            shared = await self._open()
        return shared.client.get_database_client(self._settings.database)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Call]:
        """A block that calls Cosmos DB once, and is cut off if no answer comes in time.

        After a call was cut off, by this or by the caller, the next one opens another client: a connection that
        no longer answers must not be used again. Other calls that are under way keep theirs.

        Raises TimeoutError, AzureError or OSError.
        """
        async with self._limited() as limit:
            shared = await self._open()
            shared.calls += 1
            try:
                database = shared.client.get_database_client(self._settings.database)
                yield Call(database.get_container_client, lambda: limit.reschedule(self._ends()))
            except asyncio.CancelledError:
                self._discard(shared)
                raise
            finally:
                shared.calls -= 1
                self._close_if_unused(shared)

    async def positions(self) -> Positions:
        """Return the positions of the relay's own leases. Raises LeaseError."""
        settings = self._settings
        try:
            async with self.call() as call:
                return await read_positions(
                    call.container(settings.lease_container),
                    call.container(settings.container),
                    prefix=settings.lease_prefix,
                    own_only=True,
                )
        except (AzureError, OSError) as error:
            raise LeaseError(
                "old events must be compared with the leases, but the container "
                f"'{settings.lease_container}' could not be read: {first_line(error)} "
                "Check that the app may read it and the outbox container."
            ) from error

    async def close(self) -> None:
        """Close the client, if there is one. No call may be under way."""
        if self._shared is not None:
            self._discard(self._shared)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _open(self) -> _Shared:
        async with self._opening:
            if self._shared is None:
                client = cosmos_client(self._settings.connection)
                try:
                    await client.__aenter__()
                except BaseException:
                    self._close_later(client)
                    raise
                self._shared = _Shared(client)
            return self._shared

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[asyncio.Timeout]:
        """A time limit whose error says how long it was."""
        limit = asyncio.timeout_at(self._ends())
        try:
            async with limit:
                yield limit
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"Cosmos DB did not answer within {self._call_timeout_s:g} s.") from error

    def _ends(self) -> float:
        return asyncio.get_running_loop().time() + self._call_timeout_s

    def _discard(self, shared: _Shared) -> None:
        shared.discarded = True
        if self._shared is shared:
            self._shared = None
        self._close_if_unused(shared)

    def _close_if_unused(self, shared: _Shared) -> None:
        if shared.discarded and shared.calls == 0:
            # Once: no further call begins on a client that was discarded.
            self._close_later(shared.client)

    def _close_later(self, client: CosmosClient) -> None:
        """Close in the background: a connection without answers may take its time."""
        task = asyncio.create_task(_close(client))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def parameters(**values: Any) -> list[dict[str, Any]]:
    """Return the parameters of a query, whose names have a `@` there."""
    return [{"name": f"@{name}", "value": value} for name, value in values.items()]


@contextmanager
def explaining(
    container: str, kind: Callable[[Exception], type[RelayError]] = lambda _: ServiceError, *needed: str
) -> Iterator[None]:
    """Raise errors of the SDK as errors of a kind that name what to check, and what is `needed` in addition."""
    try:
        yield
    except (AzureError, OSError) as error:
        check = ", ".join(("COSMOS", "COSMOS_DATABASE", "the name of the container", *needed))
        raise kind(error)(
            f"the container '{container}' cannot be read or written: {first_line(error)} Check {check}, and the "
            "rights of this identity."
        ) from error


async def _close(client: CosmosClient) -> None:
    closing = asyncio.create_task(client.close())
    # Not by a timeout: the SDK swallows a cancellation while it waits for its own tasks.
    done, _ = await asyncio.wait({closing}, timeout=_CLOSE_TIMEOUT_S)
    closing.cancel()
    for task in done:
        # A failure to close has no consequence.
        task.exception()
