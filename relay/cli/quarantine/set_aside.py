"""`python -m relay quarantine add`: have the relay set aside an event that blocks."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from relay.cli.committed import Outbox, Stored, open_outbox
from relay.cli.console import Console
from relay.cli.quarantine.records import Records
from relay.cli.results import ExitCode, Result
from relay.errors import UsageError
from relay.settings import Settings

EXAMPLES = """\
examples:
  python -m relay quarantine add b5e2e7aa-4982-4735-9422-c39a7c4af5c2 0f8fad5b-d9cb-469f-a165-70867728950e
  python -m relay quarantine add KEY ID --yes
  python -m relay quarantine list
  python -m relay quarantine discard set-aside:3f1c0a92b7d4   (withdraws the order)

KEY is the event's partition key, ID the id of its document; the log line of a blocked event names both. The relay
reads the order at the event's next attempt, within a minute: it stores the event in quarantine with the reason
set-aside instead of publishing it, removes the order, and goes on with what is behind it. Nothing has to be
deployed or restarted. The event can be released or discarded like any other in quarantine.

An order counts for an event that is being retried. One that the relay has passed already is not affected."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is known of the event: lines for people, and whether to go on without --force."""

    lines: list[str]
    data: dict[str, Any]
    sound: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `quarantine add`."""
    parser.add_argument("key", metavar="KEY", help="the event's partition key")
    parser.add_argument("id", metavar="ID", help="the id of the event's document")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="order it though the outbox has no such event")


async def run(arguments: argparse.Namespace, settings: Settings, records: Records, console: Console) -> Result:
    """Look at the event, ask, and write the order.

    Raises:
        UsageError: Nobody can be asked.
        ServiceError: The outbox or the leases cannot be read, or the quarantine container cannot be written.
    """
    if not arguments.yes and not console.can_ask:
        raise UsageError("nobody can be asked, as standard input is no terminal: add --yes")
    key, event_id = arguments.key, arguments.id
    async with open_outbox(settings) as outbox:
        finding = await _look(outbox, key, event_id, settings.event_type)
    data = {"partitionKey": key, "id": event_id, **finding.data}
    if not finding.sound and not arguments.force:
        return Result(ExitCode.FINDINGS, {**data, "ordered": False}, [*finding.lines, "Nothing was ordered."])
    if not arguments.yes:
        for line in finding.lines:
            console.note(line)
        if not console.confirm(f"Set the event {event_id!r} of partition key {key!r} aside?"):
            return Result(ExitCode.FINDINGS, {**data, "ordered": False}, ["Nothing was ordered."])
    new = await records.holdings.add(key, event_id)
    said = "ordered" if new else "was ordered before"
    lines = finding.lines if arguments.yes else []
    lines = [*lines, f"{said}: the relay sets the event {event_id!r} aside at its next attempt"]
    return Result(ExitCode.OK, {**data, "ordered": True}, lines)


async def _look(outbox: Outbox, key: str, event_id: str, event_type: str) -> _Finding:
    stored = await outbox.find(key, event_id)
    if stored is None:
        line = (
            f"The outbox has no document {event_id!r} with the partition key {key!r}: it has expired or was "
            "deleted, or one of the two is misspelt. --force orders it all the same."
        )
        return _Finding([line], {"found": False, "passed": None}, sound=False)
    if stored.type != event_type:
        line = (
            f"The document {event_id!r} is of the type {stored.type!r}, not {event_type!r}: the relay does not "
            "publish it. --force orders it all the same."
        )
        return _Finding([line], {"found": True, "passed": None}, sound=False)
    return await _position(outbox, key, stored)


async def _position(outbox: Outbox, key: str, stored: Stored) -> _Finding:
    passed = None if stored.lsn is None else await (await outbox.positions()).passed(key, stored.lsn)
    lines = {
        True: [
            "The relay has passed this event already, by its lease: it was published or is in quarantine, and "
            "the order will have no effect unless the event is delivered again."
        ],
        None: ["No lease tells whether the relay has passed this event already."],
        False: [],
    }
    return _Finding(lines[passed], {"found": True, "passed": passed}, sound=True)
