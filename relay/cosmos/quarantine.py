"""The quarantine container: documents that can never become messages, kept with the reason why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from relay.cosmos.containers import Containers
from relay.cosmos.holds import order_id, read_holds, touch
from relay.cosmos.parking import NotParked, ParkedKey
from relay.cosmos.quarantine_record import create, record_of
from relay.errors import QuarantineError, first_line
from relay.events import Reason, Rejected
from relay.holds import Holds
from relay.telemetry import instruments

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy


class CosmosQuarantine:
    """Writes quarantine records, and reads what is held back; `ports.Quarantine` says what of it is promised."""

    def __init__(self, containers: Containers) -> None:
        """`containers` is the connection to use; it is closed with the quarantine."""
        self._containers = containers
        # Keys that this process has parked. A read may be answered by a replica that does not know of it yet.
        self._parked: set[str] = set()

    async def holds(self) -> Holds:
        """What must not be published now: one query, to be asked before an attempt publishes anything.

        It is needed at every attempt where poison parks its key, else only from the second attempt on, for the
        orders to set an event aside. A key that this process has parked is in it until its release, however far
        behind the replica that answers; what another process has just written may be missing.

        Raises:
            QuarantineError: The container could not be read. Nothing was published; the next attempt asks again.
        """
        with self._explaining("parked keys and orders to set events aside must be read", "read"):
            container = await self._containers.quarantine()
            found = await read_holds(container)
            for key in self._parked - found.parked:
                if not await _still_parked(container, key):
                    self._parked.discard(key)
        return Holds(found.parked | self._parked, found.set_aside)

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, *, park: bool = False) -> None:
        """Store every document, as `ports.Quarantine` describes it.

        Raises:
            QuarantineError: The container could not be written, or a parked key was released in the meantime.
                Nothing is lost: the invocation fails, and its next attempt stores or publishes the rest.
        """
        if not rejected:
            return
        with self._explaining(f"{len(rejected)} document(s) must be quarantined", "written"):
            container = await self._containers.quarantine()
            if park:
                await self._store_parking(container, rejected, invocation_id)
            else:
                await _store_each(container, rejected, invocation_id)
            for item in rejected:
                if item.reason is Reason.SET_ASIDE:
                    await _remove_order(container, item)

    async def _store_parking(
        self, container: ContainerProxy, rejected: Sequence[Rejected], invocation_id: str
    ) -> None:
        # Without a key that a session could have, nothing can follow: there is nothing to park.
        await _store_each(container, (item for item in rejected if item.partition_key is None), invocation_id)
        by_key: dict[str, list[Rejected]] = {}
        for item in rejected:
            if item.partition_key is not None:
                by_key.setdefault(item.partition_key, []).append(item)
        for key, items in by_key.items():
            records = [record_of(item, invocation_id) for item in items]
            try:
                parks = items[0].reason is not Reason.KEY_PARKED
                await ParkedKey(container, key, _count).store(records, parks=parks)
            except NotParked:
                raise QuarantineError(
                    "a parked partition key was released while further events of it were being stored; the next "
                    "attempt publishes them"
                ) from None
            self._parked.add(key)

    @contextmanager
    def _explaining(self, why: str, done: str) -> Iterator[None]:
        try:
            yield
        except (AzureError, OSError) as error:
            raise QuarantineError(
                f"{why}, but the container '{self._containers.quarantine_name}' could not be {done}: "
                f"{first_line(error)} Check that it exists with the partition key /partitionKey, and that the app "
                "may write to it."
            ) from error

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._containers.close()


async def _store_each(container: ContainerProxy, rejected: Iterable[Rejected], invocation_id: str) -> None:
    for item in rejected:
        record = record_of(item, invocation_id)
        if await create(container, record):
            _count(record)


def _count(record: Mapping[str, Any]) -> None:
    instruments.quarantined(Reason(record["reason"]))


async def _still_parked(container: ContainerProxy, key: str) -> bool:
    """A write asks the primary replica, which is never behind."""
    from azure.cosmos.exceptions import CosmosResourceNotFoundError

    _, (marker, operations) = touch()
    try:
        await container.patch_item(marker, key, operations)
    except CosmosResourceNotFoundError:
        return False
    return True


async def _remove_order(container: ContainerProxy, item: Rejected) -> None:
    from azure.cosmos.exceptions import CosmosResourceNotFoundError

    try:
        await container.delete_item(order_id(item.id), item.partition_key)
    except CosmosResourceNotFoundError:
        return
