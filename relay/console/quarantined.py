"""Which events are in quarantine: read as records are added, and counted by reason."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime, timedelta

from relay.console.backlog import Waiting
from relay.console.model import QuarantineGroup, QuarantineRecord
from relay.events import Reason
from relay.quarantine.items import Filter, Items, RecordSummary

_PAGE = 1000
_PAGES = 20

# Records are written by several hosts, whose clocks differ.
_OVERLAP = timedelta(seconds=30)

# How many records are known of: about 50 MB. Their summaries are kept of the latest only.
_KNOWN = 500_000
_SUMMARIES = 1000

_EXAMPLES = 10

_ROUNDS = 10


class Quarantined:
    """The events of quarantine. Its methods raise StoreError."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._names: dict[int, None] = {}
        self._latest: OrderedDict[int, RecordSummary] = OrderedDict()
        self._since: str | None = None
        self._newest: str | None = None
        self.complete = True
        self._groups: list[QuarantineGroup] | None = None
        self._total = self._calls = 0

    async def read(self) -> bool:
        """Read the records that were added since; returns False where there are more than were read."""
        limit = _PAGE
        for _ in range(_PAGES):
            page = await self._items.summaries(Filter(since=self._since), limit)
            self._keep(page)
            if len(page) < limit:
                self._since = _before(self._newest)
                return True
            # As many records of one moment as fit a page: the next one has to be larger to get past them.
            limit = 2 * limit if page[-1].quarantined_at == self._since else _PAGE
            self._since = page[-1].quarantined_at
        return False

    def has(self, event: Waiting) -> bool:
        """Whether a record of this event was read."""
        return any(name in self._names for name in _names_of(event))

    def record(self, event: Waiting) -> QuarantineRecord | None:
        """The record of an event, where it is one of the latest."""
        found = next((self._latest[name] for name in _names_of(event) if name in self._latest), None)
        return None if found is None else record_of(found)

    async def groups(self) -> tuple[int, list[QuarantineGroup]]:
        """How many records there are now, and those of each reason, the most frequent first.

        While their number stays the same, they are read again by one call in ten only.
        """
        total = await self._items.count(Filter())
        self._calls += 1
        if self._groups is None or total != self._total or self._calls % _ROUNDS == 0:
            self._groups = await self._read_groups(total)
            self._total = total
        return total, self._groups

    async def _read_groups(self, total: int) -> list[QuarantineGroup]:
        if total <= _PAGE:
            return grouped(await self._items.summaries(Filter(), _PAGE))
        groups = []
        for reason in Reason:
            chosen = Filter(reason=reason)
            if count := await self._items.count(chosen):
                examples = await self._items.summaries(chosen, _EXAMPLES)
                groups.append(QuarantineGroup(reason, count, tuple(map(record_of, examples))))
        return sorted(groups, key=_by_count)

    def _keep(self, page: Iterable[RecordSummary]) -> None:
        for summary in page:
            name = _name(summary)
            self._names[name] = None
            self._latest[name] = summary
            if len(self._latest) > _SUMMARIES:
                self._latest.popitem(last=False)
            if self._newest is None or summary.quarantined_at > self._newest:
                self._newest = summary.quarantined_at
        while len(self._names) > _KNOWN:
            del self._names[next(iter(self._names))]
            self.complete = False


def grouped(summaries: Iterable[RecordSummary]) -> list[QuarantineGroup]:
    """Records by reason, the most frequent reason first."""
    of_reason: dict[str, list[RecordSummary]] = {}
    for summary in summaries:
        of_reason.setdefault(summary.reason, []).append(summary)
    groups = [
        QuarantineGroup(reason, len(found), tuple(map(record_of, found[:_EXAMPLES])))
        for reason, found in of_reason.items()
    ]
    return sorted(groups, key=_by_count)


def record_of(summary: RecordSummary) -> QuarantineRecord:
    """A record as the console shows it."""
    return QuarantineRecord(
        summary.id,
        summary.partition_key,
        summary.document_id,
        summary.reason,
        summary.detail,
        summary.quarantined_at,
    )


def _by_count(group: QuarantineGroup) -> tuple[int, str]:
    return -group.count, group.reason


# Hashes, as half a million of names would take ten times as much. A record whose document is stored in parts, or
# has no string for an id, is found by its place in the feed.
def _name(summary: RecordSummary) -> int:
    return hash((summary.partition_key, summary.document_id or summary.committed))


def _names_of(event: Waiting) -> tuple[int, int]:
    partition_key, identifier = event.name
    return hash((partition_key, identifier)), hash((partition_key, event.place))


def _before(moment: str | None) -> str | None:
    return None if moment is None else (datetime.fromisoformat(moment) - _OVERLAP).isoformat()
