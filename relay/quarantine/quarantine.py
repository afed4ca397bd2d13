"""Documents that can never become messages, kept in a store with the reason why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from relay.errors import QuarantineError, StoreError
from relay.events import Reason, Rejected
from relay.holds import Holds
from relay.quarantine.holds import PARKED_ID, order_id
from relay.quarantine.items import ItemNotFound, Items
from relay.quarantine.parking import NotParked, ParkedKey
from relay.quarantine.record import create, record_of
from relay.telemetry import instruments


class StoredQuarantine:
    """Writes quarantine records, and reads what is held back; `ports.Quarantine` says what of it is promised."""

    def __init__(self, items: Items) -> None:
        """`items` is the store, which is closed with the quarantine."""
        self._items = items
        # Keys that this process has parked. A read may be answered by a replica that does not know of it yet.
        self._parked: set[str] = set()

    async def holds(self) -> Holds:
        """What must not be published now: one query, to be asked before an attempt publishes anything.

        It is needed at every attempt where poison parks its key, else only from the second attempt on, for the
        orders to set an event aside. A key that this process has parked is in it until its release, however far
        behind the replica that answers; what another process has just written may be missing.

        Raises:
            QuarantineError: The store could not be read. Nothing was published; the next attempt asks again.
        """
        with _explaining("parked keys and orders to set events aside must be read"):
            found = await self._items.holds()
            for key in self._parked - found.parked:
                if not await self._still_parked(key):
                    self._parked.discard(key)
        return Holds(found.parked | self._parked, found.set_aside)

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, *, park: bool = False) -> None:
        """Store every document, as `ports.Quarantine` describes it.

        Raises:
            QuarantineError: The store could not be written, or a parked key was released in the meantime.
                Nothing is lost: the invocation fails, and its next attempt stores or publishes the rest.
        """
        if not rejected:
            return
        with _explaining(f"{len(rejected)} document(s) must be quarantined"):
            if park:
                await self._store_parking(rejected, invocation_id)
            else:
                await self._store_each(rejected, invocation_id)
            for item in rejected:
                if item.reason is Reason.SET_ASIDE and item.partition_key is not None:
                    await self._remove_order(item.partition_key, item.id)

    async def _store_parking(self, rejected: Sequence[Rejected], invocation_id: str) -> None:
        # Without a key that a session could have, nothing can follow: there is nothing to park.
        await self._store_each((item for item in rejected if item.partition_key is None), invocation_id)
        by_key: dict[str, list[Rejected]] = {}
        for item in rejected:
            if item.partition_key is not None:
                by_key.setdefault(item.partition_key, []).append(item)
        for key, of_key in by_key.items():
            records = [record_of(item, invocation_id) for item in of_key]
            try:
                parks = of_key[0].reason is not Reason.KEY_PARKED
                await ParkedKey(self._items, key, _count).store(records, parks=parks)
            except NotParked:
                raise QuarantineError(
                    "a parked partition key was released while further events of it were being stored; the next "
                    "attempt publishes them"
                ) from None
            self._parked.add(key)

    async def _store_each(self, rejected: Iterable[Rejected], invocation_id: str) -> None:
        for item in rejected:
            record = record_of(item, invocation_id)
            if await create(self._items, record):
                _count(record)

    async def _still_parked(self, key: str) -> bool:
        """A write never sees an old state."""
        try:
            await self._items.touch(PARKED_ID, key)
        except ItemNotFound:
            return False
        return True

    async def _remove_order(self, partition_key: str, event_id: str) -> None:
        try:
            await self._items.delete(order_id(event_id), partition_key)
        except ItemNotFound:
            return

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._items.close()


def _count(record: Mapping[str, Any]) -> None:
    instruments.quarantined(Reason(record["reason"]))


@contextmanager
def _explaining(why: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise QuarantineError(f"{why}, but {error}") from error
