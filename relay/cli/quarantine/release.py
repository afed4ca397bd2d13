"""`python -m relay quarantine release`: validate quarantined documents again, publish what is sound now."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.cli.console import Progress
from relay.cli.ordered import OrderedSender
from relay.cli.quarantine.records import SHORT_ID, Head, Records
from relay.cli.quarantine.successors import Successors
from relay.cli.results import ExitCode, Result
from relay.cosmos.documents import event_of
from relay.events import Event, EventName

# A document may have 2 MB: this many are held at a time.
CHUNK = 50

# Reasons of this command's own, beside those of the quarantine (relay.events.Reason).
TYPE_DIFFERS = "type-differs"
ID_REPEATED = "id-repeated"


@dataclass(frozen=True, slots=True)
class Kept:
    """A record that stays, and the reason it has now."""

    head: Head
    reason: str
    detail: str


def repeated(head: Head) -> Kept:
    """A record whose event has the id of one before it, which may have been accepted or not."""
    return Kept(head, ID_REPEATED, "another version of this document comes first: discard the one that is wrong")


@dataclass(slots=True)
class Release:
    """What became of the records chosen.

    Attributes:
        released: Accepted by Service Bus, and removed.
        kept: Still not fit to be sent.
        gone: Removed by somebody else in the meantime.
        untried: Not sent, since their partition key failed, or nothing gets through.
        late: Released after later events of their partition key had gone out.
        unparked: Partition keys that are parked no more.
        parked: Records left of the partition keys that still are.
    """

    released: list[Head] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    gone: list[Head] = field(default_factory=list)
    untried: list[Head] = field(default_factory=list)
    late: list[Head] = field(default_factory=list)
    unparked: list[str] = field(default_factory=list)
    parked: dict[str, int] = field(default_factory=dict)


async def release(
    records: Records,
    sender: OrderedSender,
    successors: Successors,
    heads: list[Head],
    event_type: str,
    progress: Progress,
) -> Release:
    """Publish the documents of `heads`, which are in order of arrival, and remove what was accepted.

    Their keys are not parked: one that is still not fit to be sent does not hold up those behind it.

    A record is removed only after Service Bus has accepted its event, so whatever interrupts this, repeating it
    is harmless: what was accepted but not removed is dropped as a duplicate, within the window.

    Raises:
        ServiceError: The quarantine container cannot be read or written.
    """
    outcome = Release()
    released: set[EventName] = set()
    for start in range(0, len(heads), CHUNK):
        chunk = heads[start : start + CHUNK]
        if sender.gave_up:
            outcome.untried += chunk
            continue
        loaded: list[tuple[Head, Event]] = []
        for head in chunk:
            if head.partition_key in sender.failures:
                outcome.untried.append(head)
                continue
            event = await load(records, head, event_type, outcome)
            if event is None:
                continue
            if event.name in released:
                outcome.kept.append(repeated(head))
                continue
            released.add(event.name)
            loaded.append((head, event))
        await _publish(records, sender, successors, loaded, outcome)
        progress.update(len(outcome.released))
    return outcome


async def load(records: Records, head: Head, event_type: str, outcome: Release) -> Event | None:
    """The event of a record; None, and noted in `outcome`, where it is gone or not fit to be sent.

    Raises:
        ServiceError: The quarantine container cannot be read.
    """
    document = await records.document(head)
    if document is None:
        outcome.gone.append(head)
        return None
    if document.get("type") != event_type:
        outcome.kept.append(Kept(head, TYPE_DIFFERS, f"the document's type is not {event_type!r}"))
        return None
    event = event_of(document)
    if isinstance(event, Event):
        return event
    outcome.kept.append(Kept(head, str(event.reason), event.detail))
    return None


async def _publish(
    records: Records,
    sender: OrderedSender,
    successors: Successors,
    loaded: Sequence[tuple[Head, Event]],
    outcome: Release,
) -> None:
    heads = dict(enumerate(head for head, _ in loaded))
    late = [position for position, (_, event) in enumerate(loaded) if await successors.went_out(event)]
    sent = await sender.send([event for _, event in loaded])
    for rejected in sent.rejected:
        head = heads.pop(rejected.position)
        outcome.kept.append(Kept(head, str(rejected.reason), rejected.detail))
    for event in sent.accepted:
        head = heads.pop(event.position)
        await records.remove(head)
        outcome.released.append(head)
        if event.position in late:
            outcome.late.append(head)
    outcome.untried += heads.values()


def result_of(outcome: Release, sender: OrderedSender, missing: list[str]) -> Result:
    """What to print."""
    code = sender.exit_code
    if code is ExitCode.OK and (outcome.kept or outcome.untried or outcome.parked or missing):
        code = ExitCode.FINDINGS
    lines = [
        f"released {len(outcome.released)}, still invalid {len(outcome.kept)}, not sent {len(outcome.untried)}"
    ]
    lines += [f"  {kept.head.id[:SHORT_ID]}  {kept.reason}: {kept.detail}" for kept in outcome.kept]
    lines += [
        f"  {head.id[:SHORT_ID]}  not sent, partition key {head.partition_key!r}" for head in outcome.untried
    ]
    lines += [f"  {head.id[:SHORT_ID]}  was removed by somebody else" for head in outcome.gone]
    lines += [
        f"  {head.id[:SHORT_ID]}  arrives after later events of its partition key {head.partition_key!r}"
        for head in outcome.late
    ]
    lines += [f"  partition key {key!r} is parked no more" for key in outcome.unparked]
    lines += [
        f"  partition key {key!r} stays parked, with {count} record(s): "
        f"python -m relay quarantine release --all --partition-key {shlex.quote(key)}"
        for key, count in outcome.parked.items()
    ]
    lines += [f"  {name}  is not in quarantine" for name in missing]
    if sender.failures:
        lines += ["These partition keys did not get through; run the same command again:", *sender.failure_lines()]
    data: dict[str, Any] = {
        "released": [head.id for head in outcome.released],
        "stillInvalid": [
            {"id": kept.head.id, "reason": kept.reason, "detail": kept.detail} for kept in outcome.kept
        ],
        "notSent": [head.id for head in outcome.untried],
        "gone": [head.id for head in outcome.gone],
        "missing": missing,
        "late": [head.id for head in outcome.late],
        "unparked": outcome.unparked,
        "stillParked": outcome.parked,
        "failures": sender.failures_data(),
    }
    return Result(code, data, lines)
