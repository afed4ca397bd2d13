"""The quarantine as the commands read and change it: records, parked keys, and orders to set events aside."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from operator import attrgetter, itemgetter

from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.outcomes import OUTCOME_TYPE, Outcome, Removal, Removed
from relay.backends.outbox import Outbox
from relay.core import holds
from relay.core.documents import SourceDocument
from relay.core.errors import ServiceError, StoreError, UsageError
from relay.core.events import Reason, Rejected
from relay.core.holds import Holds
from relay.core.place import Place, PlaceInFeed
from relay.core.remedy import LIST, discard
from relay.quarantine.items import (
    BatchFailed,
    Create,
    Delete,
    Filter,
    Item,
    ItemChanged,
    ItemExists,
    ItemNotFound,
    Items,
    Operation,
    RecordSummary,
    in_order,
    latest,
)
from relay.quarantine.record import Kept, hold, part_id

# Ids are 40 hexadecimal digits; this many are shown.
SHORT_ID = 12

LEAST_ID = 8
"""Minimum number of them that name a record or an order: fewer may be a slip, or an empty variable."""

_CANDIDATES = 10

# Maximum number of times that an order may change while it is replaced.
_TRIES = 5


Discarded = tuple[str, str, PlaceInFeed | None]
"""The key and the id of a discarded event, and its place in the feed; None if that is not known."""


class Ordered(StrEnum):
    """Result of ordering that an event be set aside."""

    NEW = "ordered"
    PENDING = "already ordered"
    CARRIED_OUT = "already set aside"


class QuarantineAdmin:
    """The quarantine of an outbox; `relay/core/holds.py` describes the items of parked keys and orders.

    Every method raises StoreError if the store cannot be read or written.
    """

    def __init__(self, items: Items) -> None:
        self._items = items

    async def count(self, chosen: Filter) -> int:
        return await self._items.count(chosen)

    async def find(self, chosen: Filter, limit: int | None = None) -> list[RecordSummary]:
        """Find the oldest records in order of arrival, at most `limit`; those of one key in commit order."""
        return in_order(await self._items.summaries(chosen, limit))

    async def find_by_ids(self, ids: Sequence[str]) -> tuple[list[RecordSummary], list[str]]:
        """Find the records with these ids or beginnings of ids, in order of arrival.

        Returns the ids that no record has, too.

        Raises:
            UsageError: One is too short, or is that of an order, or more than one record has an id that begins so.
        """
        found: dict[str, RecordSummary] = {}
        missing = []
        for beginning in ids:
            if beginning.startswith(holds.ORDER_PREFIX):
                raise UsageError(
                    f"{beginning!r} is an order to set an event aside, not a record. To withdraw it: ",
                    discard(beginning),
                )
            _check_length(beginning, beginning)
            summaries = in_order(await self._items.summaries_by_id(beginning))
            _check_unambiguous("records", beginning, [described(each, whole=True) for each in summaries])
            if not summaries:
                missing.append(beginning)
            found |= {summary.id: summary for summary in summaries}
        return in_order(found.values()), missing

    async def document(self, summary: RecordSummary) -> Kept | None:
        """Return the quarantined document, joined from its parts, or None if the record no longer exists."""
        try:
            record = (await self._items.read(summary.id, summary.partition_key)).item
            parts = [await self._items.read(part, summary.partition_key) for part in _part_ids(summary)]
        except ItemNotFound:
            return None
        if not parts:
            return Kept.of(record, record["document"])
        return Kept.of(record, json.loads("".join([str(part.item["text"]) for part in parts])))

    async def remove(
        self, summary: RecordSummary, outbox: Outbox | None = None, removal: Removal | None = None
    ) -> bool:
        """Remove a record and its parts in one transaction, if they still exist; and store who did so.

        What was parked behind another event has no order that holds it. It gets one in the same transaction, as a
        later attempt at its page would publish it, or set it aside again. So might one that is under way, even if
        the relay has passed the event, which `outbox` tells.

        Returns:
            False if somebody else has removed it: then it is stored what they did.
        """
        ids = [summary.id, *_part_ids(summary)]
        operations: list[Operation] = list(map(Delete, ids))
        if removal is not None:
            operations.append(Create(removal.item(summary)))
        try:
            document = await self._unheld(summary, outbox)
            if document is None or not await self._hold(summary, document, outbox, operations):
                await self._items.batch(summary.partition_key, operations)
        except BatchFailed as failed:
            if not isinstance(failed.error, ItemNotFound):
                raise
            # Somebody else has removed some of the items.
            for item in ids:
                with suppress(ItemNotFound):
                    await self._items.delete(item, summary.partition_key)
            return False
        return True

    async def note(self, summary: RecordSummary, removal: Removal) -> None:
        """Store what an operator did with a record that somebody else has removed."""
        await self._items.create(removal.item(summary))

    async def removed(self, partition_key: str) -> list[Removed]:
        """The records of a key that operators have released or discarded, the earliest first."""
        found = map(Removed.of, await self._items.of_type(OUTCOME_TYPE, partition_key))
        return sorted(found, key=attrgetter("at"))

    async def discarded(self) -> dict[Discarded, Removed]:
        """Return the events whose last removed record was discarded, by key, id and place in the feed.

        The place is None where it is not known. What was discarded more than thirty days ago may be forgotten.
        """
        found = sorted(map(Removed.of, await self._items.of_type(OUTCOME_TYPE)), key=attrgetter("at"))
        last = {
            (each.partition_key, each.document_id, each.committed): each
            for each in found
            if each.document_id is not None
        }
        return {event: each for event, each in last.items() if each.outcome is Outcome.DISCARDED}

    async def _unheld(self, summary: RecordSummary, outbox: Outbox | None) -> SourceDocument | None:
        """Return the document of a record that was parked behind another event, if the record still exists."""
        kept = await self.document(summary) if summary.reason == Reason.KEY_PARKED else None
        if kept is None:
            return None
        return kept.source if outbox is None else outbox.document_of(kept.stored, kept.place)

    async def _hold(
        self,
        summary: RecordSummary,
        document: SourceDocument,
        outbox: Outbox | None,
        operations: Sequence[Operation],
    ) -> bool:
        """Carry out operations, and put an order in place that holds a document; returns False if one does."""
        passed_at = None
        # Without an answer, the relay finds out later.
        with suppress(ServiceError):
            if outbox is not None and await outbox.passed(document):
                passed_at = time.time()
        item = Rejected(document, Reason.KEY_PARKED, summary.detail, partition_key=summary.partition_key)
        return await hold(self._items, summary.partition_key, item, *operations, passed_at=passed_at)

    async def parked(self, partition_key: str | None = None) -> dict[str, Item]:
        """Return the items of parked keys by key, the longest parked first.

        Returns only `partition_key` if it is given.
        """
        items = await self._items.of_type(holds.PARKED_TYPE, partition_key)
        return {item["partitionKey"]: item for item in sorted(items, key=itemgetter("since"))}

    async def holds(self) -> Holds:
        """Return parked keys and orders, as the relay reads them."""
        return await self._items.holds()

    async def unpark(self, partition_key: str) -> bool:
        """Unpark a key that has no record left.

        The relay changes the marker with each record that it stores. The marker is removed only as it was read
        before the records were counted, so a record that is stored in between keeps the key parked.

        Returns:
            False if the key is still parked: it has a record, perhaps a new one.
        """
        try:
            marker = await latest(self._items, holds.PARKED_ID, partition_key)
            # The count is at least as recent as that read.
            if await self.count(Filter(partition_key=partition_key)):
                return False
            await self._items.delete(holds.PARKED_ID, partition_key, etag=marker.etag)
        except ItemNotFound:
            return True
        except ItemChanged:
            return False
        return True

    async def orders(self, partition_key: str | None = None) -> list[Item]:
        """Return the items of pending orders, the oldest first; only those of `partition_key` if it is given."""
        items = await self._items.of_type(holds.ORDER_TYPE, partition_key)
        return sorted(filter(holds.is_pending, items), key=itemgetter("orderedAt"))

    async def find_orders(self, ids: Sequence[str]) -> tuple[list[Item], list[str]]:
        """Find the pending orders with these ids or beginnings of ids; and the ids that none has.

        Raises:
            UsageError: One is too short, or more than one order has an id that begins so.
        """
        for beginning in ids:
            _check_length(beginning, beginning.removeprefix(holds.ORDER_PREFIX))
        pending = await self.orders() if ids else []
        found: dict[tuple[str, str], Item] = {}
        missing = []
        for beginning in ids:
            matching = [order for order in pending if order["id"].startswith(beginning)]
            _check_unambiguous("orders", beginning, [described_order(each, whole=True) for each in matching])
            found |= {(order["partitionKey"], order["id"]): order for order in matching}
            missing += [] if matching else [beginning]
        return list(found.values()), missing

    async def order(self, partition_key: str, event_id: str, places: Collection[Place] = ()) -> Ordered:
        """Write an order to set an event aside, unless there is one.

        One that was carried out at one of `places`, those of the event, stays: it keeps the event from coming back
        once its record is released or discarded. At another place it is about an earlier version, and is replaced.
        """
        order = holds.order_item(partition_key, event_id)
        for _ in range(_TRIES):
            try:
                await self._items.create(order)
                return Ordered.NEW
            except ItemExists:
                pass
            with suppress(ItemNotFound, BatchFailed):
                # A failed batch has found it changed or removed in the meantime.
                found = await latest(self._items, order["id"], partition_key)
                if holds.is_pending(found.item):
                    return Ordered.PENDING
                if Place.from_item(found.item.get("place")) in places:
                    return Ordered.CARRIED_OUT
                await self._items.batch(partition_key, [Delete(order["id"], found.etag), Create(order)])
                return Ordered.NEW
        raise StoreError(f"the order {order['id']!r} is being changed by others: run the command again")

    async def withdraw(self, order: Item) -> bool:
        """Remove a pending order; returns False if it was carried out or withdrawn in the meantime."""
        with suppress(ItemNotFound, ItemChanged):
            found = await latest(self._items, order["id"], order["partitionKey"])
            if holds.is_pending(found.item):
                await self._items.delete(order["id"], order["partitionKey"], etag=found.etag)
                return True
        return False


@asynccontextmanager
async def open_records(backend: OperatorBackend) -> AsyncIterator[QuarantineAdmin]:
    """The quarantine of one outbox."""
    items = backend.open_store()
    try:
        yield QuarantineAdmin(items)
    finally:
        await items.close()


def _part_ids(summary: RecordSummary) -> list[str]:
    return [part_id(summary.id, number) for number in range(summary.parts)]


def described(summary: RecordSummary, *, whole: bool = False) -> str:
    """Describe a record in one line, with its whole id or as much of it as is shown."""
    identifier = summary.id if whole else summary.id[:SHORT_ID]
    document = "" if summary.document_id is None else f", document {summary.document_id!r}"
    at = to_the_second(summary.quarantined_at)
    return f"{identifier}  {at}  {summary.reason}  partition key {summary.partition_key!r}{document}"


def described_order(order: Item, *, whole: bool = False) -> str:
    """Describe a pending order in one line, with its whole id or as much of it as is shown."""
    identifier = order["id"] if whole else short_order(order)
    return (
        f"{identifier}  {to_the_second(order['orderedAt'])}  pending  "
        f"partition key {order['partitionKey']!r}, document {order['eventId']!r}"
    )


def short_order(order: Item) -> str:
    """Abbreviate the id of an order for display."""
    identifier: str = order["id"]
    return identifier[: len(holds.ORDER_PREFIX) + SHORT_ID]


def to_the_second(moment: str) -> str:
    """Format a time in ISO 8601 without the fraction of the second."""
    return f"{moment[:19]}Z"


def _check_length(identifier: str, digits: str) -> None:
    if len(digits) < LEAST_ID:
        behind = f" after {holds.ORDER_PREFIX}" if identifier.startswith(holds.ORDER_PREFIX) else ""
        raise UsageError(
            f"the id {identifier!r} is too short: give at least its first {LEAST_ID} characters{behind}. "
            "To list the ids: ",
            LIST,
        )


def _check_unambiguous(what: str, beginning: str, candidates: Sequence[str]) -> None:
    if len(candidates) > 1:
        shown = list(candidates[:_CANDIDATES])
        if len(candidates) > _CANDIDATES:
            shown.append(f"and {len(candidates) - _CANDIDATES} more")
        raise UsageError(
            "\n  ".join(
                [f"{len(candidates)} {what} have an id that begins with {beginning!r}: give more of it", *shown]
            )
        )
