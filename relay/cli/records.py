"""The quarantine as the commands see it: summaries of records in order of arrival, and documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from relay import assembly
from relay.cli.holdings import Holdings, explaining_store_errors
from relay.errors import UsageError
from relay.quarantine.items import BatchFailed, Delete, Filter, ItemNotFound, Items, RecordSummary, in_order
from relay.quarantine.record import part_id
from relay.settings import Settings

# Ids are 40 hexadecimal digits; this many are shown.
SHORT_ID = 12


class Records:
    """Reads and removes quarantine records.

    Attributes:
        holdings: The parked keys and the orders, which are in the same store.
    """

    def __init__(self, items: Items) -> None:
        self._items = items
        self.holdings = Holdings(items)

    async def count(self, chosen: Filter) -> int:
        """How many records there are."""
        with explaining_store_errors():
            return await self._items.count(chosen)

    async def find(self, chosen: Filter, limit: int | None = None) -> list[RecordSummary]:
        """The oldest records in order of arrival, at most `limit`; those of one key in commit order."""
        with explaining_store_errors():
            return in_order(await self._items.summaries(chosen, limit))

    async def find_by_ids(self, ids: list[str]) -> tuple[list[RecordSummary], list[str]]:
        """The records with these ids or beginnings of ids, in order of arrival; and the ids that no record has.

        Raises:
            UsageError: More than one record has an id that begins so.
        """
        found: dict[str, RecordSummary] = {}
        missing = []
        for beginning in ids:
            with explaining_store_errors():
                summaries = await self._items.summaries_by_id(beginning)
            if len(summaries) > 1:
                count = len(summaries)
                raise UsageError(f"{count} records have an id that begins with {beginning!r}: give more of it")
            if not summaries:
                missing.append(beginning)
            found |= {summary.id: summary for summary in summaries}
        return in_order(found.values()), missing

    async def document(self, summary: RecordSummary) -> dict[str, Any] | None:
        """The quarantined document, joined from its parts; None if the record no longer exists."""
        with explaining_store_errors():
            try:
                if summary.parts == 0:
                    record = await self._items.read(summary.id, summary.partition_key)
                    document: dict[str, Any] = record.item["document"]
                    return document
                parts = [await self._items.read(part, summary.partition_key) for part in _part_ids(summary)]
            except ItemNotFound:
                return None
        whole: dict[str, Any] = json.loads("".join([str(part.item["text"]) for part in parts]))
        return whole

    async def remove(self, summary: RecordSummary) -> None:
        """Remove a record and its parts in one transaction, if they still exist."""
        ids = [summary.id, *_part_ids(summary)]
        with explaining_store_errors():
            try:
                await self._items.batch(summary.partition_key, list(map(Delete, ids)))
            except BatchFailed as failed:
                if not isinstance(failed.error, ItemNotFound):
                    raise
                # Somebody else has removed some of the items.
                for item in ids:
                    await self._remove_item(item, summary.partition_key)

    async def _remove_item(self, item: str, partition_key: str) -> None:
        try:
            await self._items.delete(item, partition_key)
        except ItemNotFound:
            return


@asynccontextmanager
async def open_records(settings: Settings) -> AsyncIterator[Records]:
    """The quarantine of an outbox. Its methods raise ServiceError where it cannot be reached."""
    items = assembly.open_store(settings)
    try:
        yield Records(items)
    finally:
        await items.close()


def _part_ids(summary: RecordSummary) -> list[str]:
    return [part_id(summary.id, number) for number in range(summary.parts)]
