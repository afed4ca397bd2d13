"""Whether what follows an event in its partition key has gone out already."""

from __future__ import annotations

import time
from contextlib import aclosing

from relay.cli.committed import Outbox, Range
from relay.cli.quarantine.records import Filter, Records
from relay.cosmos.leases import Positions
from relay.events import Event

_Place = tuple[int, int]


class Successors:
    """Compares quarantined events with what of their partition keys is in the outbox, and passed by the relay."""

    def __init__(self, outbox: Outbox, records: Records, event_type: str) -> None:
        self._outbox = outbox
        self._records = records
        self._event_type = event_type
        self._positions: Positions | None = None
        self._last: dict[str, _Place | None] = {}

    async def went_out(self, event: Event) -> bool:
        """Whether the relay has passed a later event of the same key that is not in quarantine.

        False also where that cannot be told: the document does not say where it stood in the change feed, or the
        later events have expired.

        Raises:
            ServiceError: The outbox, the leases or the quarantine cannot be read.
        """
        place, committed = _place(event.document), event.committed_at
        if place is None or committed is None:
            return False
        if event.partition_key not in self._last:
            # Events of a key come in the order of their commits: the first one's reading serves for all.
            self._last[event.partition_key] = await self._last_passed(event.partition_key, committed)
        last = self._last[event.partition_key]
        return last is not None and last > place

    async def _last_passed(self, partition_key: str, since: int) -> _Place | None:
        """Where the last event of a key stands that the relay has passed and not quarantined."""
        if self._positions is None:
            self._positions = await self._outbox.positions()
        heads = await self._records.heads(Filter(partition_key=partition_key))
        quarantined = {head.document_id for head in heads}
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
