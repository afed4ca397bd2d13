"""Reads what is known of one partition key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from relay.console.model import Delivery, Problem, Timeline
from relay.console.parts import Parts
from relay.console.ports import Topic
from relay.console.timeline import Known, timeline
from relay.holds import PARKED_TYPE
from relay.outbox import Committed, Outbox, Position
from relay.quarantine.items import Filter, Items, RecordSummary

# Maximum number of records of a key that are read; each costs a row of a query.
_RECORDS = 10_000

# Maximum clock skew between the database and the hosts, in seconds.
_SKEW_S = 60


class Keys:
    """Reads timelines."""

    def __init__(self, outbox: Outbox, items: Items, topic: Topic | None) -> None:
        self._outbox = outbox
        self._items = items
        self._topic = topic

    async def timeline(
        self, partition_key: str, limit: int, published_at: Mapping[str, float], *, data: bool
    ) -> Timeline:
        """The last events of a key; a part that cannot be read is among its problems.

        Args:
            partition_key: The key.
            limit: The most events, from 1.
            published_at: When the relay was seen to pass an event, by id.
            data: Whether to read the events' data.
        """
        parts = Parts()
        committed: Sequence[Committed] = ()
        more, partition, parked_since = False, None, None
        positions: dict[str, Position] = {}
        records: list[RecordSummary] = []
        judged = False
        deliveries: Sequence[Delivery] = ()
        texts: Mapping[str, str] = {}
        # The events before the positions, and these before the quarantine: a record is stored before the position
        # passes its event.
        async with parts.reading("outbox"):
            committed, more = await self._outbox.of_key(partition_key, limit)
        async with parts.reading("positions"):
            positions = {each.name: each for each in await self._outbox.positions()}
            partition = None if committed else await self._outbox.partition_of(partition_key)
        async with parts.reading("quarantine"):
            records = await self._records(partition_key, committed, more)
            for marker in await self._items.of_type(PARKED_TYPE, partition_key):
                parked_since = marker["since"]
            judged = len(records) < _RECORDS
        ids = [event.id for event in committed] + [each.document_id for each in records if each.document_id]
        if self._topic is not None:
            async with parts.reading("topic"):
                deliveries = await self._topic.deliveries(partition_key, ids)
        if data:
            async with parts.reading("data"):
                texts = await self._outbox.data(partition_key, [event.id for event in committed])
        known = Known(
            partition_key,
            committed,
            more,
            positions,
            records,
            judged,
            deliveries,
            published_at,
            texts,
            parked_since,
            partition,
            [*parts.problems, *_limits(records)],
        )
        return timeline(known, limit)

    async def _records(
        self, partition_key: str, committed: Sequence[Committed], more: bool
    ) -> list[RecordSummary]:
        since = None
        if more and committed:
            # No event of these was set aside before it was committed.
            since = datetime.fromtimestamp(committed[0].committed_at - _SKEW_S, UTC).isoformat()
        return await self._items.summaries(Filter(partition_key=partition_key, since=since), _RECORDS)


def _limits(records: Sequence[RecordSummary]) -> Iterator[Problem]:
    if len(records) >= _RECORDS:
        yield Problem(
            "quarantine",
            f"Only the first {_RECORDS:,} quarantine records were read; some published events may be shown as not "
            "yet published.",
        )
