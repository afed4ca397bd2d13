"""Finds out whether later events of a partition key were already published."""

from __future__ import annotations

import time
from contextlib import aclosing

from relay.cli.committed import Outbox, Range
from relay.cli.quarantine.records import Records
from relay.cosmos.leases import Positions
from relay.events import Event
from relay.quarantine.summaries import Filter

_Place = tuple[int, int]


class Successors:
    """Compares quarantined events with the later events of their partition keys in the outbox."""

    def __init__(self, outbox: Outbox, records: Records, event_type: str) -> None:
        self._outbox = outbox
        self._records = records
        self._event_type = event_type
        self._positions: Positions | None = None
        self._last: dict[str, _Place | None] = {}

    async def went_out(self, event: Event) -> bool:
        """Whether the relay has passed a later event of the same key that is not in quarantine.

        False also if that is unknown: the document has no place in the change feed, or the later events have
        expired.

        Raises:
            ServiceError: The outbox, the leases or the quarantine cannot be read.
        """
        place, committed = _place(event.document), event.committed_at
        if place is None or committed is None:
            return False
        if event.partition_key not in self._last:
            # Events of a key are asked for in commit order, so one reading of the feed serves all of them.
            self._last[event.partition_key] = await self._last_passed(event.partition_key, committed)
        last = self._last[event.partition_key]
        return last is not None and last > place

    async def _last_passed(self, partition_key: str, since: int) -> _Place | None:
        """The place of the last event of a key that the relay has passed and that is not in quarantine."""
        if self._positions is None:
            self._positions = await self._outbox.positions()
        summaries = await self._records.find(Filter(partition_key=partition_key))
        quarantined = {summary.document_id for summary in summaries}
        chosen = Range(self._event_type, since, int(time.time()) + 1, partition_key)
        (feed_range,) = await self._outbox.feed_ranges(chosen)
        last: _Place | None = None
        async with aclosing(self._outbox.pages(chosen, feed_range, 1)) as pages:
            async for page in pages:
                for document in page:
                    place = _place(document)
                    if place is None or document["id"] in quarantined:
                        continue
                    if await self._positions.passed(partition_key, place[0]) is not False:
                        last = place if last is None else max(last, place)
        return last


def _place(document: object) -> _Place | None:
    if not isinstance(document, dict):
        return None
    lsn, order = document.get("_lsn"), document.get("order")
    if type(lsn) is not int:
        return None
    return lsn, order if type(order) is int else 0
