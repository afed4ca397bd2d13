"""Documents that can never become messages, kept in a store with the reason why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from relay.core.errors import QuarantineError, StoreError
from relay.core.events import EventName, Reason, Rejected
from relay.core.holds import PARKED_ID, Holds, Order, fulfilled_order_item, order_id
from relay.core.place import Place
from relay.quarantine.items import (
    BATCH_OPERATIONS,
    BatchFailed,
    Create,
    Delete,
    Item,
    ItemNotFound,
    Items,
    Operation,
    Stored,
    Writable,
)
from relay.quarantine.parking import NotParked, ParkedKey
from relay.quarantine.record import create, create_held, record_of
from relay.telemetry import instruments


@dataclass(frozen=True, slots=True)
class _Parking:
    """One time that this process stored something in a parked key; `place` is that of the event that parked it."""

    place: Place | None


@dataclass(frozen=True, slots=True)
class _Checked:
    """A store to which nothing is written once `check` raises."""

    items: Writable
    check: Callable[[], None]

    async def create(self, item: Item, /) -> None:
        self.check()
        await self.items.create(item)

    async def batch(self, partition_key: str, operations: Sequence[Operation], /) -> None:
        self.check()
        await self.items.batch(partition_key, operations)

    async def read(self, identifier: str, partition_key: str, /) -> Stored:
        return await self.items.read(identifier, partition_key)

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        await self.items.touch(identifier, partition_key)


class StoredQuarantine:
    """Writes quarantine records, and reads holds; `ports.Quarantine` describes its contract."""

    def __init__(self, items: Items) -> None:
        self._items = items
        # Keys that this process has parked. A read may be answered by a replica that does not know of it yet.
        self._parked: dict[str, _Parking] = {}

    async def holds(self) -> Holds:
        """Read the holds with one query.

        A key that this process has parked is in it until its release, however far behind the replica that answers;
        what another process has just written may be missing.
        """
        with _explaining("parked keys and orders to set events aside must be read"):
            found = await self._items.holds()
            for key, parking in list(self._parked.items()):
                if key in found.parked or await self._still_parked(key):
                    continue
                # Meanwhile, another attempt may have found the same, or have parked the key again.
                if self._parked.get(key) is parking:
                    del self._parked[key]
        return Holds({**self.parked_here(), **found.parked}, found.orders)

    def parked_here(self) -> Mapping[str, Place | None]:
        return {key: each.place for key, each in self._parked.items()}

    async def store(
        self,
        rejected: Sequence[Rejected],
        /,
        invocation_id: str,
        *,
        park: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        if not rejected:
            return
        items = _Checked(self._items, check)
        with _explaining(f"{len(rejected)} document(s) must be quarantined"):
            if park:
                await self._store_parking(items, rejected, invocation_id)
            else:
                for item in rejected:
                    await _store_held(items, item, invocation_id)

    async def note_passed(self, orders: Mapping[EventName, Order], /, at: float) -> None:
        def noting(name: EventName, order: Order) -> list[Operation]:
            assert order.place is not None
            return [_removing(name, order), Create(fulfilled_order_item(*name, order.place, at))]

        with _explaining("orders that are carried out must be changed"):
            await self._change(orders, noting)

    async def remove(self, orders: Mapping[EventName, Order], /) -> None:
        with _explaining("orders that are carried out must be removed"):
            await self._change(orders, lambda name, order: [_removing(name, order)])

    async def _change(
        self, orders: Mapping[EventName, Order], changing: Callable[[EventName, Order], list[Operation]]
    ) -> None:
        """Change orders key by key, as many in a batch as it takes.

        If one of them is not as it was read, those of its batch stay as they are: the next reading sees them.
        """
        by_key: dict[str, list[list[Operation]]] = {}
        for name, order in orders.items():
            by_key.setdefault(name[0], []).append(changing(name, order))
        for key, changes in by_key.items():
            at_a_time = BATCH_OPERATIONS // len(changes[0])
            for start in range(0, len(changes), at_a_time):
                with suppress(BatchFailed):
                    await self._items.batch(key, list(chain.from_iterable(changes[start : start + at_a_time])))

    async def _store_parking(self, items: Writable, rejected: Sequence[Rejected], invocation_id: str) -> None:
        # Without a key that a session could have, nothing can follow: there is nothing to park.
        for item in rejected:
            if item.partition_key is None:
                await _store_held(items, item, invocation_id)
        by_key: dict[str, list[Rejected]] = {}
        for item in rejected:
            if item.partition_key is not None:
                by_key.setdefault(item.partition_key, []).append(item)
        for key, of_key in by_key.items():
            records = [record_of(item, invocation_id) for item in of_key]
            by_record = {record["id"]: item for record, item in zip(records, of_key, strict=True)}
            behind = {name: item for name, item in by_record.items() if item.reason is Reason.KEY_PARKED}
            held = {name: item for name, item in by_record.items() if name not in behind}
            try:
                parks = of_key[0].reason is not Reason.KEY_PARKED
                place = of_key[0].document.place
                parked = ParkedKey(items, key, _count, held, behind)
                await parked.store(records, parks=parks, place=place)
            except NotParked:
                raise QuarantineError(
                    "events of a parked partition key were released or discarded while further ones were being "
                    "stored; the next attempt publishes these"
                ) from None
            # A later poison does not move the place from which the key is parked.
            known = self._parked.get(key)
            self._parked[key] = _Parking((place if parks else None) if known is None else known.place)

    async def _still_parked(self, key: str) -> bool:
        """Return True if the key is still parked, by a write: it never sees an old state."""
        try:
            await self._items.touch(PARKED_ID, key)
        except ItemNotFound:
            return False
        return True

    async def close(self) -> None:
        await self._items.close()


async def _store_held(items: Writable, item: Rejected, invocation_id: str) -> None:
    record = record_of(item, invocation_id)
    if item.partition_key is None:
        new = await create(items, record)
    else:
        new = await create_held(items, record, item.partition_key, item)
    if new:
        _count(record)


def _removing(name: EventName, order: Order) -> Delete:
    """Return the deletion of an order as it was read."""
    return Delete(order_id(name[1]), order.etag)


def _count(record: Mapping[str, Any]) -> None:
    instruments.quarantined(Reason(record["reason"]))


@contextmanager
def _explaining(why: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise QuarantineError(f"{why}, but {error}") from error
