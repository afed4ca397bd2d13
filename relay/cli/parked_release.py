"""Releases the records of parked keys in order, and unparks a key when no record is left."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import takewhile

from relay.cli.records import Records
from relay.cli.release import CHUNK, ReleaseOutcome, StillInvalid, load, repeated
from relay.cli.sender import OrderedSender
from relay.events import Event, EventName, Reason
from relay.outbox import Outbox
from relay.quarantine.items import Filter, RecordSummary

# The relay keeps storing new events of a parked key. This bounds a release that does not catch up.
_ROUNDS = 50


class ParkedRelease:
    """Releases the records of parked keys, and adds the results to a `ReleaseOutcome`."""

    def __init__(
        self, records: Records, sender: OrderedSender, outbox: Outbox, event_type: str, outcome: ReleaseOutcome
    ) -> None:
        self._records = records
        self._outbox = outbox
        self._sender = sender
        self._event_type = event_type
        self._outcome = outcome
        self._sent: set[EventName] = set()

    async def release(self, partition_key: str, chosen: Set[str] | None) -> None:
        """Publish the records of a parked key in order, and remove each when it is accepted.

        A record that is still invalid, or not chosen, blocks those behind it. The key is unparked when no record
        is left.

        Args:
            partition_key: The key.
            chosen: The ids of the records to release; None for all, including those that arrive during the
                release.

        Raises:
            ServiceError: The quarantine container cannot be read or written.
        """
        outcome = self._outcome
        done: set[str] = set()
        for _ in range(_ROUNDS):
            summaries = await self._left(partition_key, done)
            ready = summaries if chosen is None else list(takewhile(lambda each: each.id in chosen, summaries))
            went = await self._release_in_order(ready)
            done |= {summary.id for summary in went}
            if len(went) == len(ready) and await self._records.holdings.unpark(partition_key):
                outcome.unparked.append(partition_key)
                return
            if len(went) < len(ready) or chosen is not None:
                break
        left = await self._left(partition_key, done)
        reported = {kept.summary.id for kept in outcome.still_invalid} | {
            summary.id for summary in outcome.not_sent
        }
        outcome.still_invalid += [
            StillInvalid(
                summary,
                str(Reason.KEY_PARKED),
                "an earlier record of its parked key must be released or discarded first",
            )
            for summary in left
            if chosen is not None and summary.id in chosen and summary.id not in reported
        ]
        outcome.parked[partition_key] = len(left)

    async def _left(self, partition_key: str, done: Set[str]) -> list[RecordSummary]:
        # A replica may still return what was just removed.
        summaries = await self._records.find(Filter(partition_key=partition_key))
        return [summary for summary in summaries if summary.id not in done]

    async def _release_in_order(self, summaries: Sequence[RecordSummary]) -> list[RecordSummary]:
        """Returns the records that left quarantine: all, or those before the first that stays."""
        went: list[RecordSummary] = []
        for start in range(0, len(summaries), CHUNK):
            chunk = summaries[start : start + CHUNK]
            its_part = await self._release_chunk(chunk)
            went += its_part
            if len(its_part) < len(chunk):
                break
        return went

    async def _release_chunk(self, summaries: Sequence[RecordSummary]) -> list[RecordSummary]:
        went: list[RecordSummary] = []
        loaded: list[tuple[RecordSummary, Event]] = []
        for summary in summaries:
            kept, gone = len(self._outcome.still_invalid), len(self._outcome.gone)
            event = await load(self._records, self._outbox, summary, self._event_type, self._outcome)
            if event is not None and event.name in self._sent:
                self._outcome.still_invalid.append(repeated(summary))
            elif event is not None:
                self._sent.add(event.name)
                loaded.append((summary, event))
            if len(self._outcome.gone) > gone:
                went.append(summary)
            if len(self._outcome.still_invalid) > kept:
                break
        return went + await self._publish(loaded)

    async def _publish(self, loaded: Sequence[tuple[RecordSummary, Event]]) -> list[RecordSummary]:
        sent = await self._sender.send([event for _, event in loaded], stop_at_rejection=True)
        refused = {rejected.position: rejected for rejected in sent.rejected}
        accepted = {event.position for event in sent.accepted}
        went = []
        for position, (summary, event) in enumerate(loaded):
            if position in accepted:
                await self._records.remove(summary)
                self._outcome.released.append(summary)
                went.append(summary)
            elif (rejected := refused.get(position)) is not None:
                self._outcome.still_invalid.append(StillInvalid(summary, str(rejected.reason), rejected.detail))
            elif event.partition_key in self._sender.failures:
                self._outcome.not_sent.append(summary)
        return went
