"""The quarantine container: documents that can never become messages, kept with the reason why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from relay.cosmos.containers import Containers
from relay.cosmos.holds import Holds, order_id, read_holds, touch
from relay.cosmos.parking import NotParked, ParkedKey
from relay.cosmos.quarantine_record import RECORD_TYPE, Quarantined, create, record_of
from relay.errors import QuarantineError, first_line
from relay.events import Reason
from relay.settings import Settings
from relay.telemetry import instruments

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

__all__ = ["RECORD_TYPE", "Holds", "Quarantine", "Quarantined", "record_of"]

# Documents without a key that a session could have: nothing of theirs can follow, so there is nothing to park.
_KEYLESS = frozenset(
    {
        Reason.PARTITION_KEY_MISSING,
        Reason.PARTITION_KEY_NOT_STRING,
        Reason.PARTITION_KEY_EMPTY,
        Reason.PARTITION_KEY_TOO_LONG,
    }
)


class Quarantine:
    """Writes quarantine records, and reads what is held back. The connection is made when it is first needed."""

    def __init__(self, settings: Settings, containers: Containers | None = None) -> None:
        """`containers` is the connection to use, a new one by default; it is closed with the quarantine."""
        self._name = settings.cosmos_quarantine_container
        self._containers = containers or Containers(settings)
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
        with self._telling("parked keys and orders to set events aside must be read", "read"):
            container = await self._open()
            found = await read_holds(container)
            for key in self._parked - found.parked:
                if not await _still_parked(container, key):
                    self._parked.discard(key)
        return Holds(found.parked | self._parked, found.set_aside)

    async def store(self, items: Sequence[Quarantined], invocation_id: str, park: bool = False) -> None:
        """Store every item; one that is there already from an earlier attempt is left as it is.

        Args:
            items: The documents, in order of arrival.
            invocation_id: Stands in the records.
            park: Whether the first document of a partition key parks the key, atomically with its record.
                Those with `Reason.KEY_PARKED` need a key that is parked; `holds` tells which are.

        An order to set an event aside is removed once its record (`Reason.SET_ASIDE`) is stored.

        Raises:
            QuarantineError: The container could not be written, or a parked key was released in the meantime.
                Nothing is lost: the invocation fails, and its next attempt stores or publishes the rest.
        """
        if not items:
            return
        with self._telling(f"{len(items)} document(s) must be quarantined", "written"):
            container = await self._open()
            if park:
                await self._store_parking(container, items, invocation_id)
            else:
                for record in _records(enumerate(items), invocation_id):
                    if await create(container, record):
                        _count(record)
            for item in items:
                if item.reason is Reason.SET_ASIDE:
                    await _remove_order(container, item)

    async def _store_parking(
        self, container: ContainerProxy, items: Sequence[Quarantined], invocation_id: str
    ) -> None:
        keyed = sorted(enumerate(items), key=lambda pair: _key_to_park(pair[1]) or "")
        for key, group in groupby(keyed, key=lambda pair: _key_to_park(pair[1])):
            its_items = list(group)
            records = list(_records(its_items, invocation_id))
            if key is None:
                for record in records:
                    if await create(container, record):
                        _count(record)
                continue
            try:
                parks = its_items[0][1].reason is not Reason.KEY_PARKED
                await ParkedKey(container, key, _count).store(records, parks=parks)
            except NotParked:
                raise QuarantineError(
                    "a parked partition key was released while further events of it were being stored; the next "
                    "attempt publishes them"
                ) from None
            self._parked.add(key)

    @contextmanager
    def _telling(self, why: str, done: str) -> Iterator[None]:
        try:
            yield
        except (AzureError, OSError) as error:
            raise QuarantineError(
                f"{why}, but the container '{self._name}' could not be {done}: "
                f"{first_line(error)} Check that it exists with the partition key /partitionKey, and that the app "
                "may write to it."
            ) from error

    async def _open(self) -> ContainerProxy:
        return await self._containers.open(self._name)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._containers.close()


def _records(items: Iterable[tuple[int, Quarantined]], invocation_id: str) -> Iterator[dict[str, Any]]:
    return (record_of(item, invocation_id, position) for position, item in items)


def _key_to_park(item: Quarantined) -> str | None:
    partition_key = item.document.get("partitionKey")
    if not isinstance(partition_key, str) or not partition_key or item.reason in _KEYLESS:
        return None
    return partition_key


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


async def _remove_order(container: ContainerProxy, item: Quarantined) -> None:
    from azure.cosmos.exceptions import CosmosResourceNotFoundError

    try:
        await container.delete_item(order_id(item.document["id"]), item.document["partitionKey"])
    except CosmosResourceNotFoundError:
        return
