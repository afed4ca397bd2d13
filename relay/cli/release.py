"""`python -m relay quarantine release`: validates quarantined documents again, and publishes the valid ones."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.cli.records import SHORT_ID, Records
from relay.cli.sender import OrderedSender
from relay.cli.successors import Successors
from relay.cli.terminal import ExitCode, Progress, Result
from relay.events import Event, EventName
from relay.outbox import Outbox
from relay.quarantine.items import RecordSummary

# How many documents, of up to 2 MB each, are in memory at a time.
CHUNK = 50

# Reasons that only this command gives, in addition to relay.events.Reason.
TYPE_DIFFERS = "type-differs"
ID_REPEATED = "id-repeated"


@dataclass(frozen=True, slots=True)
class StillInvalid:
    """A record that stays, and its current reason."""

    summary: RecordSummary
    reason: str
    detail: str


def repeated(summary: RecordSummary) -> StillInvalid:
    """A record whose event has the id of an earlier one, whether or not that was accepted."""
    detail = "an earlier record has another version of this document: discard the wrong one"
    return StillInvalid(summary, ID_REPEATED, detail)


@dataclass(slots=True)
class ReleaseOutcome:
    """The result of a release.

    Attributes:
        released: Accepted by Service Bus, and removed.
        still_invalid: Cannot be sent.
        gone: Removed by somebody else during the release.
        not_sent: Not sent, because their partition key failed or no partition key succeeds.
        late: Released after later events of their partition key were published.
        unparked: Partition keys that are no longer parked.
        parked: The number of records left, of each partition key that is still parked.
    """

    released: list[RecordSummary] = field(default_factory=list)
    still_invalid: list[StillInvalid] = field(default_factory=list)
    gone: list[RecordSummary] = field(default_factory=list)
    not_sent: list[RecordSummary] = field(default_factory=list)
    late: list[RecordSummary] = field(default_factory=list)
    unparked: list[str] = field(default_factory=list)
    parked: dict[str, int] = field(default_factory=dict)


async def release(
    records: Records,
    sender: OrderedSender,
    outbox: Outbox,
    summaries: list[RecordSummary],
    event_type: str,
    progress: Progress,
) -> ReleaseOutcome:
    """Publish the documents of `summaries`, which are in order of arrival, and remove the accepted ones.

    Their keys are not parked: a record that is still invalid does not block those behind it.

    A record is removed only after Service Bus has accepted its event, so an interrupted release can be repeated:
    an event that was accepted but not removed is dropped as a duplicate, within the window.

    Raises:
        ServiceError: The quarantine container cannot be read or written.
    """
    outcome = ReleaseOutcome()
    successors = Successors(outbox, records)
    released: set[EventName] = set()
    for start in range(0, len(summaries), CHUNK):
        chunk = summaries[start : start + CHUNK]
        if sender.gave_up:
            outcome.not_sent += chunk
            continue
        loaded: list[tuple[RecordSummary, Event]] = []
        for summary in chunk:
            if summary.partition_key in sender.failures:
                outcome.not_sent.append(summary)
                continue
            event = await load(records, outbox, summary, event_type, outcome)
            if event is None:
                continue
            if event.name in released:
                outcome.still_invalid.append(repeated(summary))
                continue
            released.add(event.name)
            loaded.append((summary, event))
        await _publish(records, sender, successors, loaded, outcome)
        progress.update(len(outcome.released))
    return outcome


async def load(
    records: Records, outbox: Outbox, summary: RecordSummary, event_type: str, outcome: ReleaseOutcome
) -> Event | None:
    """The event of a record; None, and noted in `outcome`, where it is gone or not fit to be sent.

    Raises:
        ServiceError: The quarantine container cannot be read.
    """
    document = await records.document(summary)
    if document is None:
        outcome.gone.append(summary)
        return None
    if document.get("type") != event_type:
        detail = f"the document's type is not {event_type!r}"
        outcome.still_invalid.append(StillInvalid(summary, TYPE_DIFFERS, detail))
        return None
    event = outbox.event_of(document)
    if isinstance(event, Event):
        return event
    outcome.still_invalid.append(StillInvalid(summary, str(event.reason), event.detail))
    return None


async def _publish(
    records: Records,
    sender: OrderedSender,
    successors: Successors,
    loaded: Sequence[tuple[RecordSummary, Event]],
    outcome: ReleaseOutcome,
) -> None:
    summaries = dict(enumerate(summary for summary, _ in loaded))
    late = [position for position, (_, event) in enumerate(loaded) if await successors.went_out(event)]
    sent = await sender.send([event for _, event in loaded])
    for rejected in sent.rejected:
        summary = summaries.pop(rejected.position)
        outcome.still_invalid.append(StillInvalid(summary, str(rejected.reason), rejected.detail))
    for event in sent.accepted:
        summary = summaries.pop(event.position)
        await records.remove(summary)
        outcome.released.append(summary)
        if event.position in late:
            outcome.late.append(summary)
    outcome.not_sent += summaries.values()


def result_of(outcome: ReleaseOutcome, sender: OrderedSender, missing: list[str]) -> Result:
    """What to print."""
    code = sender.exit_code
    if code is ExitCode.OK and (outcome.still_invalid or outcome.not_sent or outcome.parked or missing):
        code = ExitCode.FINDINGS
    lines = [
        f"released {len(outcome.released)}, still invalid {len(outcome.still_invalid)}, "
        f"not sent {len(outcome.not_sent)}"
    ]
    lines += [f"  {kept.summary.id[:SHORT_ID]}  {kept.reason}: {kept.detail}" for kept in outcome.still_invalid]
    lines += [
        f"  {summary.id[:SHORT_ID]}  not sent, partition key {summary.partition_key!r}"
        for summary in outcome.not_sent
    ]
    lines += [f"  {summary.id[:SHORT_ID]}  was removed by somebody else" for summary in outcome.gone]
    lines += [
        f"  {summary.id[:SHORT_ID]}  arrives after later events of its partition key {summary.partition_key!r}"
        for summary in outcome.late
    ]
    lines += [f"  partition key {key!r} is no longer parked" for key in outcome.unparked]
    lines += [
        f"  partition key {key!r} stays parked, with {count} record(s): "
        f"python -m relay quarantine release --all --partition-key {shlex.quote(key)}"
        for key, count in outcome.parked.items()
    ]
    lines += [f"  {name}  is not in quarantine" for name in missing]
    if sender.failures:
        lines += ["Sends failed for these partition keys; run the same command again:", *sender.failure_lines()]
    data: dict[str, Any] = {
        "released": [summary.id for summary in outcome.released],
        "stillInvalid": [
            {"id": kept.summary.id, "reason": kept.reason, "detail": kept.detail} for kept in outcome.still_invalid
        ],
        "notSent": [summary.id for summary in outcome.not_sent],
        "gone": [summary.id for summary in outcome.gone],
        "missing": missing,
        "late": [summary.id for summary in outcome.late],
        "unparked": outcome.unparked,
        "stillParked": outcome.parked,
        "failures": sender.failures_data(),
    }
    return Result(code, data, lines)
