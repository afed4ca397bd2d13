"""Finds out whether later events of a partition key were already published."""

from __future__ import annotations

from relay.cli.records import Records
from relay.events import Event
from relay.outbox import Outbox
from relay.quarantine.items import Filter


class Successors:
    """Compares quarantined events with the later events of their partition keys in the outbox."""

    def __init__(self, outbox: Outbox, records: Records) -> None:
        self._outbox = outbox
        self._records = records
        self._quarantined: dict[str, set[str | None]] = {}

    async def went_out(self, event: Event) -> bool:
        """Whether the relay has passed a later event of the same key that is not in quarantine.

        False also if that is unknown: the document does not say where it was committed, or the later events have
        expired.

        Raises:
            ServiceError: The outbox, the relay's positions or the quarantine cannot be read.
        """
        later = await self._outbox.passed_behind(event)
        if not later:
            return False
        key = event.partition_key
        if key not in self._quarantined:
            summaries = await self._records.find(Filter(partition_key=key))
            self._quarantined[key] = {summary.document_id for summary in summaries}
        return any(identifier not in self._quarantined[key] for identifier in later)
