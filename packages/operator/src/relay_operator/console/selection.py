"""The records that a reader of the page has selected, and the commands that settle them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relay.core.remedy import Remedy
from relay_operator.console.formatting import Commands, plural
from relay_operator.console.model import QuarantineRecord, Snapshot
from relay_operator.reasons import may_be_released

AT_ONCE = 50
"""Maximum number of records of one command: cmd.exe takes 8 191 characters, and an id has 40."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected records among those that the page shows.

    Attributes:
        records: Those that the page shows, in its order.
        others: Number of those that it does not show: they are settled by now, or never were in quarantine. No
            command names them, as anyone can write them into an address.
        commands: What each does in words, and the command.
    """

    records: Sequence[QuarantineRecord]
    others: int
    commands: Sequence[tuple[str, Remedy]]


def selection(snapshot: Snapshot, ids: Sequence[str], commands: Commands) -> Selection:
    """Return the records with these ids, and the commands that release or discard them."""
    shown = {record.id: record for group in snapshot.quarantine for record in group.examples}
    found = [record for record in shown.values() if record.id in ids]
    return Selection(found, len(set(ids)) - len(found), list(_commands(found, commands)))


def _commands(records: Sequence[QuarantineRecord], commands: Commands) -> Iterator[tuple[str, Remedy]]:
    released = [each.id for each in records if may_be_released(each.reason)]
    discarded = [each.id for each in records]
    for what, command, ids in (
        ("release", commands.release_records, released),
        ("discard", commands.discard_records, discarded),
    ):
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            yield f"{what} {plural(len(some), 'record', 'records')}", command(some)
