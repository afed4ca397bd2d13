"""`python -m relay quarantine release`: validates quarantined documents again, and publishes the valid ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.cli import generations
from outbox_relay.operator.cli.quarantine_admin import SHORT_ID, QuarantineAdmin
from outbox_relay.operator.cli.sender import OrderedSender
from outbox_relay.operator.cli.terminal import ExitCode, Progress, Result
from outbox_relay.operator.outcomes import Outcome, Removal
from relay.backends.outbox import Outbox
from relay.core.documents import SourceDocument
from relay.core.events import Event, EventName, Reason
from relay.core.remedy import Sentence, discard, release_key
from relay.quarantine.items import Filter, RecordSummary
from relay.quarantine.record import LaterRecord

# Maximum number of documents in memory at a time, of up to 2 MB each.
_CHUNK = 50

# The relay keeps storing new events of a parked key. This bounds a release that does not catch up.
_ROUNDS = 50

# Reasons that only this command gives, in addition to relay.core.events.Reason.
_TYPE_DIFFERS = "type-differs"
_ID_REPEATED = "id-repeated"
_OTHER_STREAM = "other-stream"
_LATER_VERSION = "later-version"


@dataclass(frozen=True, slots=True)
class StillInvalid:
    """A record that stays, and its current reason."""

    summary: RecordSummary
    reason: str
    detail: str


class Release:
    """Publishes the documents of records, and removes each record whose event Service Bus has accepted.

    A record is removed only after that, so an interrupted release can be repeated: an event that was accepted but
    not removed is dropped as a duplicate, within the window.

    Attributes:
        released: Accepted by Service Bus, and removed.
        still_invalid: Cannot be sent.
        gone: Removed by somebody else during the release.
        not_sent: Not sent, because their partition key failed or no partition key succeeds.
        late: Released after later events of their partition key were published.
        unparked: Partition keys that are no longer parked.
        parked: The number of records left, of each partition key that is still parked.
    """

    def __init__(
        self, records: QuarantineAdmin, sender: OrderedSender, outbox: Outbox, backend: OperatorBackend
    ) -> None:
        self._records = records
        self._sender = sender
        self._outbox = outbox
        self._backend = backend
        self._stream = backend.settings.stream
        self._selection = backend.settings.selection
        self._removal = Removal.by_this_account(Outcome.RELEASED)
        self._sent: set[EventName] = set()
        self._quarantined: dict[str, set[str | None]] = {}
        self.released: list[RecordSummary] = []
        self.still_invalid: list[StillInvalid] = []
        self.gone: list[RecordSummary] = []
        self.not_sent: list[RecordSummary] = []
        self.late: list[RecordSummary] = []
        self.unparked: list[str] = []
        self.parked: dict[str, int] = {}

    async def release(self, summaries: Sequence[RecordSummary], progress: Progress) -> None:
        """Publish records in order of arrival whose keys are not parked: one that stays does not block the others.

        Raises:
            StoreError: The quarantine cannot be read or written.
            ServiceError: The outbox cannot be read.
        """
        for chunk in _chunks(summaries):
            if self._sender.gave_up:
                self.not_sent += chunk
            else:
                await self._release_chunk(chunk, in_order=False)
                progress.update(len(self.released))

    async def release_parked(self, partition_key: str, chosen: Set[str] | None) -> None:
        """Publish the records of a parked key in order, and unpark the key when no record is left.

        A record that is still invalid, or not chosen, blocks those behind it.

        Args:
            partition_key: The key.
            chosen: The ids of the records to release; None for all, including those that arrive during the
                release.

        Raises:
            StoreError: The quarantine cannot be read or written.
        """
        done: set[str] = set()
        for _ in range(_ROUNDS):
            summaries = await self._left(partition_key, done)
            ready = summaries if chosen is None else list(takewhile(lambda each: each.id in chosen, summaries))
            went = await self._in_order(ready)
            done |= {summary.id for summary in went}
            if len(went) == len(ready) and await self._records.unpark(partition_key):
                self.unparked.append(partition_key)
                return
            if len(went) < len(ready) or chosen is not None:
                break
        left = await self._left(partition_key, done)
        self.parked[partition_key] = len(left)
        reported = {kept.summary.id for kept in self.still_invalid} | {summary.id for summary in self.not_sent}
        for summary in left:
            if chosen is not None and summary.id in chosen and summary.id not in reported:
                detail = "an earlier record of its parked key must be released or discarded first"
                self.still_invalid.append(StillInvalid(summary, str(Reason.KEY_PARKED), detail))

    async def _left(self, partition_key: str, done: Set[str]) -> list[RecordSummary]:
        # A replica may still return a record that was just removed.
        summaries = await self._records.find(Filter(partition_key=partition_key))
        return [summary for summary in summaries if summary.id not in done]

    async def _in_order(self, summaries: Sequence[RecordSummary]) -> list[RecordSummary]:
        """Release the records in order, and return those that left quarantine.

        They are all, or those before the first that stays.
        """
        went: list[RecordSummary] = []
        for chunk in _chunks(summaries):
            its_part = await self._release_chunk(chunk, in_order=True)
            went += its_part
            if len(its_part) < len(chunk):
                break
        return went

    async def _release_chunk(self, chunk: Sequence[RecordSummary], *, in_order: bool) -> list[RecordSummary]:
        """Release a chunk, and return the records that left quarantine.

        With `in_order`, one that stays blocks those behind it.
        """
        gone: list[RecordSummary] = []
        loaded: list[tuple[RecordSummary, Event]] = []
        for summary in chunk:
            if summary.partition_key in self._sender.failures:
                self.not_sent.append(summary)
                continue
            event = await self._load(summary)
            if event is None:
                gone.append(summary)
            elif isinstance(event, Event):
                loaded.append((summary, event))
            else:
                self.still_invalid.append(event)
                if in_order:
                    break
        self.gone += gone
        return gone + await self._publish(loaded, in_order=in_order)

    async def _load(self, summary: RecordSummary) -> Event | StillInvalid | None:
        """The event of a record, or why it cannot be sent; None if the record is gone."""
        try:
            kept = await self._records.document(summary)
        except LaterRecord as error:
            return StillInvalid(summary, _LATER_VERSION, str(error))
        if kept is None:
            return None
        # As relay.toml maps it now.
        document = self._outbox.document_of(kept.stored, kept.place)
        if "partitionKey" not in document.fields:
            document = await self._outbox.restored(document) or document
        if not self._selection.has_type(document.fields.get("type")):
            detail = f"the document's type is not {self._selection.types_text}"
            return StillInvalid(summary, _TYPE_DIFFERS, detail)
        if not self._selection.takes(document) and not await self._was_taken(document):
            return StillInvalid(summary, _OTHER_STREAM, self._where(document))
        event = self._outbox.event_of(document)
        if not isinstance(event, Event):
            return StillInvalid(summary, str(event.reason), event.detail)
        if event.name in self._sent:
            # Whether or not the earlier one was accepted.
            detail = "an earlier record has another version of this document: discard the wrong one"
            return StillInvalid(summary, _ID_REPEATED, detail)
        self._sent.add(event.name)
        return event

    async def _was_taken(self, document: SourceDocument) -> bool:
        """Return True if the rules of its commit time give a document to this stream. Raises RelayError."""
        if self._backend.settings.rules is None:
            return False
        judged = await generations.judge(self._backend, self._outbox, document, None)
        return judged.settings.selection.takes(document)

    def _where(self, document: SourceDocument) -> str:
        """Describe where the rules send a document that does not belong to this stream."""
        route = self._selection.route_of(document)
        if route is None:
            return f"no rule of relay.toml gives the document to the stream {self._stream!r}: discard the record"
        names = ", ".join(map(repr, route.to))
        return (
            f"by the rules of relay.toml, the document goes to {names} now, not to the stream {self._stream!r}: "
            "if it is missing there, replay it with --stream; then discard the record"
        )

    async def _publish(
        self, loaded: Sequence[tuple[RecordSummary, Event]], *, in_order: bool
    ) -> list[RecordSummary]:
        """Publish the events, and return the records that were accepted and removed."""
        # Of a parked key, no later event was published.
        late = [] if in_order else [summary.id for summary, event in loaded if await self._is_late(event)]
        sent = await self._sender.send([event for _, event in loaded], stop_at_rejection=in_order)
        rejected = {each.position: each for each in sent.rejected}
        accepted = {event.position for event in sent.accepted}
        removed = []
        for position, (summary, event) in enumerate(loaded):
            if position in accepted:
                if not await self._records.remove(summary, self._outbox, self._removal):
                    # Whoever discarded it was too late: it is published.
                    await self._records.note(summary, self._removal)
                removed.append(summary)
            elif refusal := rejected.get(position):
                self.still_invalid.append(StillInvalid(summary, str(refusal.reason), refusal.detail))
            elif not in_order or event.partition_key in self._sender.failures:
                self.not_sent.append(summary)
        self.released += removed
        self.late += [summary for summary in removed if summary.id in late]
        return removed

    async def _is_late(self, event: Event) -> bool:
        """Return True if the relay has passed a later event of the same key that is not in quarantine.

        False also if that is unknown: the document does not have its place, or the later events have
        expired.

        Raises:
            ServiceError: The outbox or the relay's positions cannot be read.
        """
        later = await self._outbox.passed_behind(event)
        if not later:
            return False
        key = event.partition_key
        if key not in self._quarantined:
            summaries = await self._records.find(Filter(partition_key=key))
            self._quarantined[key] = {summary.document_id for summary in summaries}
        return any(identifier not in self._quarantined[key] for identifier in later)

    def result(self, missing: list[str]) -> Result:
        """Return the lines to print; `missing` are the ids that no record has."""
        code = self._sender.exit_code
        if code is ExitCode.OK and (self.still_invalid or self.not_sent or self.parked or missing):
            code = ExitCode.FINDINGS
        data: dict[str, Any] = {
            "released": [summary.id for summary in self.released],
            "stillInvalid": [
                {"id": kept.summary.id, "reason": kept.reason, "detail": kept.detail}
                for kept in self.still_invalid
            ],
            "notSent": [summary.id for summary in self.not_sent],
            "gone": [summary.id for summary in self.gone],
            "missing": missing,
            "late": [summary.id for summary in self.late],
            "unparked": self.unparked,
            "stillParked": self.parked,
            "failures": self._sender.failures_data(),
        }
        return Result(code, data, self._lines(missing))

    def _lines(self, missing: list[str]) -> list[str]:
        released, invalid, not_sent = len(self.released), len(self.still_invalid), len(self.not_sent)
        lines = [f"released {released}, still invalid {invalid}, not sent {not_sent}"]
        lines += [f"  {kept.summary.id[:SHORT_ID]}  {kept.reason}: {kept.detail}" for kept in self.still_invalid]
        remarks = (
            (self.not_sent, "not sent, partition key {!r}"),
            (self.gone, "was removed by somebody else"),
            (self.late, "arrives after later events of its partition key {!r}"),
        )
        for summaries, remark in remarks:
            lines += [f"  {each.id[:SHORT_ID]}  {remark.format(each.partition_key)}" for each in summaries]
        lines += [f"  partition key {key!r} is no longer parked" for key in self.unparked]
        lines += [each for key, count in self.parked.items() for each in self._parked_lines(key, count)]
        lines += [f"  {name}  is not in quarantine" for name in missing]
        if self._sender.failures:
            lines.append("Sends failed for these partition keys; run the same command again:")
        return lines + self._sender.failure_lines()

    def _parked_lines(self, key: str, count: int) -> list[str]:
        """Return the commands that unpark a key with `count` records left."""
        stays = f"  partition key {key!r} stays parked, with {count} record(s)"
        release = Sentence("    ", release_key(key))
        # A record that waits for an earlier one is no cause.
        of_key = [kept for kept in self.still_invalid if kept.summary.partition_key == key]
        blocker = next((kept for kept in of_key if kept.reason != Reason.KEY_PARKED), None)
        if blocker is None:
            return [f"{stays}. To release them in order:", release]
        identifier = blocker.summary.id[:SHORT_ID]
        return [
            f"{stays}, behind {identifier}. Correct what refuses it, or discard it:",
            Sentence("    ", discard(identifier)),
            "  Then release the others in order:",
            release,
        ]


def _chunks(summaries: Sequence[RecordSummary]) -> Iterator[Sequence[RecordSummary]]:
    return (summaries[start : start + _CHUNK] for start in range(0, len(summaries), _CHUNK))
