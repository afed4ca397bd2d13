"""`python -m relay quarantine add`: orders the relay to set a blocking event aside."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from relay.cli.records import Records
from relay.cli.terminal import ExitCode, Result, Terminal
from relay.errors import UsageError
from relay.outbox import Outbox

EXAMPLES = """\
examples:
  python -m relay quarantine add b5e2e7aa-4982-4735-9422-c39a7c4af5c2 0f8fad5b-d9cb-469f-a165-70867728950e
  python -m relay quarantine add KEY ID --yes
  python -m relay quarantine list
  python -m relay quarantine discard set-aside:3f1c0a92b7d4   (withdraws the order)

KEY is the event's partition key, ID the id of its document; the log line of a blocked event has both. The relay
reads the order at the event's next attempt, within a minute. It quarantines the event with the reason set-aside
instead of publishing it, or with its own reason where it is invalid, and continues with the next events. No
deployment or restart is needed. The order holds until the relay has passed the event, whatever becomes of the
other events of its page. The event can be released or discarded like any other quarantined event.

It has no effect on an event that the relay has already passed."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is known about the event.

    Attributes:
        lines: For people.
        data: For `--json`.
        allowed: Whether the order may be written without --force.
    """

    lines: list[str]
    data: dict[str, Any]
    allowed: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `quarantine add`."""
    parser.add_argument("key", metavar="KEY", help="the event's partition key")
    parser.add_argument("id", metavar="ID", help="the id of the event's document")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--force", action="store_true", help="write the order even if the event is not found")


async def run(
    arguments: argparse.Namespace, event_type: str, records: Records, outbox: Outbox, terminal: Terminal
) -> Result:
    """Look up the event, ask for confirmation, and write the order.

    Raises:
        UsageError: Confirmation is impossible.
        ServiceError: The outbox or the leases cannot be read, or the quarantine container cannot be written.
    """
    if not arguments.yes and not terminal.can_ask:
        raise UsageError("cannot ask for confirmation, as standard input is no terminal: add --yes")
    key, event_id = arguments.key, arguments.id
    finding = await _look(outbox, key, event_id, event_type)
    data = {"partitionKey": key, "id": event_id, **finding.data}
    if not finding.allowed and not arguments.force:
        return Result(ExitCode.FINDINGS, {**data, "ordered": False}, [*finding.lines, "Nothing was ordered."])
    if not arguments.yes:
        for line in finding.lines:
            terminal.note(line)
        if not terminal.confirm(f"Set the event {event_id!r} of partition key {key!r} aside?"):
            return Result(ExitCode.FINDINGS, {**data, "ordered": False}, ["Nothing was ordered."])
    new = await records.holdings.add(key, event_id)
    done = "ordered" if new else "already ordered"
    lines = finding.lines if arguments.yes else []
    lines = [*lines, f"{done}: the relay sets the event {event_id!r} aside at its next attempt"]
    return Result(ExitCode.OK, {**data, "ordered": True}, lines)


async def _look(outbox: Outbox, key: str, event_id: str, event_type: str) -> _Finding:
    found = await outbox.find(key, event_id)
    if found is None:
        line = (
            f"The outbox has no document {event_id!r} with the partition key {key!r}: it has expired or was "
            "deleted, or the key or the id is misspelt. --force writes the order anyway."
        )
        return _Finding([line], {"found": False, "passed": None}, allowed=False)
    if found.type != event_type:
        line = (
            f"The document {event_id!r} is of the type {found.type!r}, not {event_type!r}: the relay does not "
            "publish it. --force writes the order anyway."
        )
        return _Finding([line], {"found": True, "passed": None}, allowed=False)
    lines = {
        True: [
            "The relay has already passed this event, according to its checkpoint: the event was published or is "
            "in quarantine. The order has no effect unless the event is delivered again."
        ],
        None: ["No checkpoint shows whether the relay has already passed this event."],
        False: [],
    }
    return _Finding(lines[found.passed], {"found": True, "passed": found.passed}, allowed=True)
