"""`python -m relay quarantine release`: validate quarantined documents again, publish what is sound now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relay.events import DomainEvent, InvalidEvent
from relay.operations.console import Progress
from relay.operations.ordered import OrderedSender
from relay.operations.records import SHORT_ID, Head, Records
from relay.operations.results import ExitCode, Result

# A document may have 2 MB: this many are held at a time.
_CHUNK = 50

# Reasons of this command's own, beside those of the quarantine (relay.events.Reason).
TYPE_DIFFERS = "type-differs"
ID_REPEATED = "id-repeated"


@dataclass(frozen=True, slots=True)
class Kept:
    """A record that stays, and the reason it has now."""

    head: Head
    reason: str
    detail: str


@dataclass(slots=True)
class Release:
    """What became of the records chosen.

    Attributes:
        released: Accepted by Service Bus, and removed.
        kept: Still not fit to be sent.
        gone: Removed by somebody else in the meantime.
        untried: Not sent, since their partition key failed, or nothing gets through.
    """

    released: list[Head] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    gone: list[Head] = field(default_factory=list)
    untried: list[Head] = field(default_factory=list)


async def release(
    records: Records, sender: OrderedSender, heads: list[Head], event_type: str, progress: Progress
) -> Release:
    """Publish the documents of `heads`, which are in order of arrival, and remove what was accepted.

    A record is removed only after Service Bus has accepted its event, so whatever interrupts this, repeating it
    is harmless: what was accepted but not removed is dropped as a duplicate, within the window.

    Raises:
        ServiceError: The quarantine container cannot be read or written.
    """
    outcome = Release()
    released_ids: set[tuple[str, str]] = set()
    for start in range(0, len(heads), _CHUNK):
        chunk = heads[start : start + _CHUNK]
        if sender.gave_up:
            outcome.untried += chunk
            continue
        events: dict[int, Head] = {}
        loaded = []
        for head in chunk:
            if head.partition_key in sender.failures:
                outcome.untried.append(head)
                continue
            event = await _load(records, head, event_type, outcome)
            if event is None:
                continue
            if (event.partition_key, event.id) in released_ids:
                outcome.kept.append(
                    Kept(head, ID_REPEATED, "another version of this document goes out; discard this one")
                )
                continue
            released_ids.add((event.partition_key, event.id))
            events[id(event)] = head
            loaded.append(event)
        await _publish(records, sender, loaded, events, outcome)
        progress.update(len(outcome.released))
    progress.finish(len(outcome.released))
    return outcome


async def _load(records: Records, head: Head, event_type: str, outcome: Release) -> DomainEvent | None:
    document = await records.document(head)
    if document is None:
        outcome.gone.append(head)
        return None
    if document.get("type") != event_type:
        outcome.kept.append(Kept(head, TYPE_DIFFERS, f"the document's type is not {event_type!r}"))
        return None
    try:
        return DomainEvent.from_document(document)
    except InvalidEvent as invalid:
        outcome.kept.append(Kept(head, str(invalid.reason), invalid.detail))
        return None


async def _publish(
    records: Records,
    sender: OrderedSender,
    loaded: list[DomainEvent],
    heads: dict[int, Head],
    outcome: Release,
) -> None:
    sent = await sender.send(loaded)
    for rejected in sent.rejected:
        head = heads.pop(id(rejected.event))
        outcome.kept.append(Kept(head, str(rejected.reason), rejected.detail))
    for event in sent.accepted:
        head = heads.pop(id(event))
        await records.remove(head)
        outcome.released.append(head)
    outcome.untried += heads.values()


def result_of(outcome: Release, sender: OrderedSender, missing: list[str]) -> Result:
    """What to print."""
    code = sender.exit_code
    if code is ExitCode.OK and (outcome.kept or outcome.untried or missing):
        code = ExitCode.FINDINGS
    lines = [
        f"released {len(outcome.released)}, still invalid {len(outcome.kept)}, not sent {len(outcome.untried)}"
    ]
    lines += [f"  {kept.head.id[:SHORT_ID]}  {kept.reason}: {kept.detail}" for kept in outcome.kept]
    lines += [
        f"  {head.id[:SHORT_ID]}  not sent, partition key {head.partition_key!r}" for head in outcome.untried
    ]
    lines += [f"  {head.id[:SHORT_ID]}  was removed by somebody else" for head in outcome.gone]
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
        "failures": sender.failures_data(),
    }
    return Result(code, data, lines)
