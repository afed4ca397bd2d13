"""Reads what is known of one partition key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from relay.console.model import Committed, Delivery, Problem, Timeline
from relay.console.ports import Outbox, Position, Topic
from relay.console.reading import guarded
from relay.console.timeline import Known, timeline
from relay.quarantine.holds import PARKED_TYPE
from relay.quarantine.items import Items
from relay.quarantine.summaries import Filter, RecordSummary

# So many records of a key are read: each costs a row of a query.
_RECORDS = 10_000

# By so much the clocks of the database and of the hosts may differ.
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
        problems: list[Problem] = []
        committed: Sequence[Committed] = ()
        more, partition, parked_since = False, None, None
        positions: dict[str, Position] = {}
        records: list[RecordSummary] = []
        deliveries: Sequence[Delivery] = ()
        texts: Mapping[str, str] = {}
        # The events before the positions, and these before the quarantine: a record is stored before the position
        # passes its event.
        async with _gathering("outbox", problems):
            committed, more = await self._outbox.of_key(partition_key, limit)
        async with _gathering("positions", problems):
            positions = {each.name: each for each in await self._outbox.positions()}
            partition = None if committed else await self._outbox.partition_of(partition_key)
        async with _gathering("quarantine", problems):
            records = await self._records(partition_key, committed, more, problems)
            for marker in await self._items.of_type(PARKED_TYPE, partition_key):
                parked_since = marker["since"]
        ids = [event.id for event in committed] + [each.document_id for each in records if each.document_id]
        if self._topic is not None:
            async with _gathering("topic", problems):
                deliveries = await self._topic.deliveries(partition_key, ids)
        if data:
            async with _gathering("data", problems):
                texts = await self._outbox.data(partition_key, [event.id for event in committed])
        known = Known(
            partition_key,
            committed,
            more,
            positions,
            records,
            deliveries,
            published_at,
            texts,
            parked_since,
            partition,
            problems,
        )
        return timeline(known, limit)

    async def _records(
        self, partition_key: str, committed: Sequence[Committed], more: bool, problems: list[Problem]
    ) -> list[RecordSummary]:
        since = None
        if more and committed:
            # No event of these was set aside before it was committed.
            since = datetime.fromtimestamp(committed[0].committed_at - _SKEW_S, UTC).isoformat()
        records = await self._items.summaries(Filter(partition_key=partition_key, since=since), _RECORDS)
        if len(records) == _RECORDS:
            problems.append(
                Problem("quarantine", f"the key has more than {_RECORDS} records: not all of them are shown")
            )
        return records


@asynccontextmanager
async def _gathering(what: str, problems: list[Problem]) -> AsyncIterator[None]:
    async with guarded(what) as outcome:
        yield
    if outcome.problem is not None:
        problems.append(outcome.problem)
