"""`python -m relay quarantine list | show | release | discard | add`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from outbox_relay.command_line import Table, as_json
from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.cli import generations
from outbox_relay.operator.cli.options import Key, Limit, OneOutbox, Session, Yes, command_app, epilogue
from outbox_relay.operator.cli.quarantine_admin import (
    LEAST_ID,
    SHORT_ID,
    Ordered,
    QuarantineAdmin,
    described,
    described_order,
    open_records,
    short_order,
    to_the_second,
)
from outbox_relay.operator.cli.release import Release
from outbox_relay.operator.cli.sender import ordered_sender
from outbox_relay.operator.cli.terminal import ExitCode, Result, Terminal
from outbox_relay.operator.outcomes import Outcome, Removal
from relay.backends.outbox import Found, Outbox
from relay.config.settings import Settings
from relay.core.errors import UsageError
from relay.core.events import Reason
from relay.core.holds import ORDER_PREFIX
from relay.quarantine.items import Filter, Item, RecordSummary

_DEFAULT_LIMIT = 100
_LISTED_WHEN_ASKING = 10

EXAMPLES = """\
examples:
  python -m relay quarantine list
  python -m relay quarantine list --reason message-too-large --json | jq -r '.records[].id'
  python -m relay quarantine show 3f1c0a92b7d4
  python -m relay quarantine release --reason message-refused
  python -m relay quarantine discard 3f1c0a92b7d4 --yes
  python -m relay quarantine add KEY ID

`python -m relay quarantine COMMAND --help` describes each command."""

LIST_EXAMPLES = f"""\
examples:
  python -m relay quarantine list --limit 20
  python -m relay quarantine list --partition-key b5e2e7aa-4982-4735-9422-c39a7c4af5c2

Lists the records in order of arrival, the oldest first, then the parked partition keys, then the pending orders to
set an event aside. Wherever a command takes an id, its first {LEAST_ID} characters or more are enough if only one
record or order has them."""

SHOW_EXAMPLES = """\
examples:
  python -m relay quarantine show 3f1c0a92b7d4
  python -m relay quarantine show 3f1c0a92b7d4 --json | jq .record.document"""

RELEASE_EXAMPLES = """\
examples:
  python -m relay quarantine release 3f1c0a92b7d4 9b20aa3c1188
  python -m relay quarantine release --reason message-too-large   (after an upgrade to Premium)
  python -m relay quarantine release --all --partition-key b5e2e7aa-4982-4735-9422-c39a7c4af5c2

Each document is validated and published as the app does it, in order of arrival. A record is removed only after
Service Bus has accepted its event, so a release can be repeated: an event that was accepted but whose record was
not removed is dropped as a duplicate, within the topic's window. A document that is still invalid stays, with
its current reason, and does not block the others. If a send fails, the rest of its partition key waits for the
next release. Consumers receive a released event after the events that its partition key had in the meantime; the
output lists the records for which there were any.

The records of a parked partition key (RELAY_ON_POISON=park) are released in order, and the key is unparked when
no record is left. --all --partition-key KEY also releases records that arrive during the release. A record that
is still invalid, or not chosen, blocks the records behind it: discard it, or release it first."""

DISCARD_EXAMPLES = """\
examples:
  python -m relay quarantine discard 3f1c0a92b7d4
  python -m relay quarantine discard --reason id-too-long --yes
  python -m relay quarantine discard set-aside:3f1c0a92b7d4   (withdraws an order of `quarantine add`)

The documents are deleted, and subscribers never receive these events: `show` them first. Without --yes the command
asks, and exits with code 2 if standard input is no terminal.

The store keeps who discarded which event, when, and what --why says; the console's timeline shows it.

The records behind a discarded record of a parked partition key stay parked until they are released or
discarded."""


ADD_EXAMPLES = """\
examples:
  python -m relay quarantine add b5e2e7aa-4982-4735-9422-c39a7c4af5c2 0f8fad5b-d9cb-469f-a165-70867728950e
  python -m relay quarantine add KEY ID --yes
  python -m relay quarantine list
  python -m relay quarantine discard set-aside:3f1c0a92b7d4   (withdraws the order)

KEY is the event's partition key, ID the id of its document; the log line of a blocked event has both. The relay
reads the order at the event's next attempt, within a minute. It quarantines the event with the reason set-aside
instead of publishing it, or with its own reason if it is invalid, and continues with the next events. No
deployment or restart is needed. The order holds until the relay has passed the event, regardless of the
other events of its page. The event can be released or discarded like any other quarantined event.

It has no effect on an event that the relay has already passed."""


app = command_app("quarantine", EXAMPLES)

Ids = Annotated[
    str,
    Parameter(name="ID", help=f"ids of records, or their beginnings, of at least {LEAST_ID} characters"),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options that choose records.

    Attributes:
        reason: only records with this reason
        partition_key: only records of this partition key
    """

    reason: Annotated[Reason | None, Parameter(metavar="REASON")] = None
    partition_key: Key = None

    @property
    def filter(self) -> Filter:
        """The filter of the records."""
        return Filter(self.reason, self.partition_key)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Selection):
    """The options that choose the records to release or to discard, besides their ids.

    Attributes:
        all: every record, or every record of --partition-key
    """

    all: bool = False

    def check(self, ids: Sequence[str]) -> None:
        """Raise UsageError if nothing is chosen, or twice."""
        if ids and (self.all or self.reason or self.partition_key):
            raise UsageError("give either ids, or --all, --reason and --partition-key, not both")
        if not ids and not self.all and not self.reason:
            raise UsageError("choose records: give ids, --reason or --all")


@asynccontextmanager
async def _opened(backend: OperatorBackend) -> AsyncIterator[tuple[QuarantineAdmin, Outbox]]:
    """The quarantine of a backend, and its outbox, which is not connected until it is read."""
    async with open_records(backend) as records:
        outbox = backend.open_outbox()
        try:
            yield records, outbox
        finally:
            await outbox.close()


@app.command(name="list", help_epilogue=epilogue(LIST_EXAMPLES))
async def list_records(
    *,
    selection: Selection = Selection(),
    limit: Limit = _DEFAULT_LIMIT,
    options: OneOutbox = OneOutbox(),
    session: Session,
) -> Result:
    """List the quarantined documents in order of arrival, the parked keys and the pending orders."""
    chosen = selection.filter
    async with _opened(options.backend(session.environment)) as (records, _):
        summaries = await records.find(chosen, limit)
        total = len(summaries) if len(summaries) < limit else await records.count(chosen)
        parked = list((await records.parked(chosen.partition_key)).values())
        orders = await records.orders(chosen.partition_key)
    lines = [line for each in _tables(summaries, parked, orders) if each.rows for line in (each, "")]
    shown = str(total) if total == len(summaries) else f"{len(summaries)} of {total}"
    data = {
        "total": total,
        "records": [summary.data() for summary in summaries],
        "parked": [{name: item[name] for name in ("partitionKey", "since", "because")} for item in parked],
        "orders": [
            {name: item[name] for name in ("id", "partitionKey", "eventId", "orderedAt")} for item in orders
        ],
    }
    return Result(ExitCode.OK, data, [*lines, f"{shown} in quarantine"])


def _tables(
    summaries: Sequence[RecordSummary], parked: Sequence[Item], orders: Sequence[Item]
) -> tuple[Table, ...]:
    records = [
        (
            each.id[:SHORT_ID],
            to_the_second(each.quarantined_at),
            each.reason,
            each.partition_key,
            each.document_id or "",
        )
        for each in summaries
    ]
    keys = [(each["partitionKey"], to_the_second(each["since"]), each["because"][:SHORT_ID]) for each in parked]
    pending = [
        (short_order(each), to_the_second(each["orderedAt"]), each["partitionKey"], each["eventId"])
        for each in orders
    ]
    return (
        Table(("RECORD", "QUARANTINED", "REASON", "PARTITION KEY", "DOCUMENT"), records),
        Table(("PARKED KEY", "SINCE", "BECAUSE OF"), keys),
        Table(("ORDER TO SET ASIDE", "ORDERED", "PARTITION KEY", "DOCUMENT"), pending),
    )


@app.command(help_epilogue=epilogue(SHOW_EXAMPLES))
async def show(
    record_id: Annotated[
        str,
        Parameter(name="ID", help=f"the id of the record, or its beginning, of at least {LEAST_ID} characters"),
    ],
    /,
    *,
    options: OneOutbox = OneOutbox(),
    session: Session,
) -> Result:
    """Show one record with its whole document."""
    async with _opened(options.backend(session.environment)) as (records, _):
        summaries, _ = await records.find_by_ids([record_id])
        kept = await records.document(summaries[0]) if summaries else None
    if kept is None:
        return Result(ExitCode.FINDINGS, {"missing": [record_id]}, [f"{record_id} is not in quarantine"])
    record = {**summaries[0].data(), "document": kept.stored}
    return Result(ExitCode.OK, {"record": record}, as_json(record, indent=2).split("\n"))


async def _chosen(
    records: QuarantineAdmin, ids: Sequence[str] | None, choice: Choice
) -> tuple[list[RecordSummary], list[str]]:
    """Return the records of `ids` in order of arrival, and the ids that no record has.

    None: the records that the options choose.
    """
    if ids is not None:
        return await records.find_by_ids(ids)
    return await records.find(choice.filter), []


@app.command(help_epilogue=epilogue(RELEASE_EXAMPLES))
async def release(
    *ids: Ids, choice: Choice = Choice(), options: OneOutbox = OneOutbox(), session: Session
) -> Result:
    """Validate and publish documents, and remove the records of those that were accepted."""
    choice.check(ids)
    backend = options.backend(session.environment)
    async with _opened(backend) as (records, outbox), ordered_sender(backend.settings) as sender:
        summaries, missing = await _chosen(records, ids or None, choice)
        parked = await records.parked(choice.partition_key)
        progress = session.terminal.progress("released", len(summaries))
        work = Release(records, sender, outbox, backend)
        await work.release([each for each in summaries if each.partition_key not in parked], progress)
        whole = choice.all and choice.reason is None
        for key in parked:
            chosen = {summary.id for summary in summaries if summary.partition_key == key}
            # A parked key without a record is one whose release was interrupted.
            if (chosen or whole) and not sender.gave_up:
                await work.release_parked(key, None if whole else chosen)
        progress.finish(len(work.released))
        return work.result(missing)


@app.command(help_epilogue=epilogue(DISCARD_EXAMPLES))
async def discard(
    *ids: Ids,
    choice: Choice = Choice(),
    yes: Yes = False,
    why: Annotated[str, Parameter(metavar="TEXT")] = "",
    options: OneOutbox = OneOutbox(),
    session: Session,
) -> Result:
    """Delete records, after asking; withdraw orders, and unpark the keys that have no record left.

    Args:
        why: the reason, which the event's timeline shows
    """
    choice.check(ids)
    terminal = session.terminal
    if not yes:
        terminal.require_answers()
    async with _opened(options.backend(session.environment)) as (records, outbox):
        of_orders = [each for each in ids if each.startswith(ORDER_PREFIX)]
        of_records = [each for each in ids if each not in of_orders]
        orders, missing_orders = await records.find_orders(of_orders)
        chosen, missing = await _chosen(records, of_records if ids else None, choice)
        missing += missing_orders
        data: dict[str, Any] = {
            "discarded": [],
            "withdrawn": [],
            "notWithdrawn": [],
            "unparked": [],
            "gone": [],
            "missing": missing,
        }
        if not yes and (chosen or orders) and not _confirmed(chosen, orders, terminal):
            return Result(ExitCode.FINDINGS, {**data, "refused": True}, ["Nothing was discarded."])
        removal = Removal.by_this_account(Outcome.DISCARDED, why)
        gone = await _remove(chosen, records, outbox, removal, terminal)
        withdrawn = [order for order in orders if await records.withdraw(order)]
        unparked, parked = await _unpark(chosen, records)
    discarded = [summary.id for summary in chosen if summary not in gone]
    data["discarded"], data["gone"] = discarded, [summary.id for summary in gone]
    data["withdrawn"] = [order["id"] for order in withdrawn]
    data["notWithdrawn"] = [order["id"] for order in orders if order not in withdrawn]
    data["unparked"] = unparked
    lines = [f"discarded {len(discarded)}"] if chosen or not orders else []
    lines += [f"  {summary.id[:SHORT_ID]}  was removed by somebody else" for summary in gone]
    lines += [f"withdrew the order {short_order(order)}" for order in withdrawn]
    lines += [
        f"the order {short_order(order)} was carried out or withdrawn in the meantime"
        for order in orders
        if order not in withdrawn
    ]
    lines += [f"partition key {key!r} is no longer parked" for key in unparked]
    lines += [f"partition key {key!r} stays parked until its other records are released" for key in parked]
    lines += [f"{identifier} is not in quarantine" for identifier in missing]
    code = ExitCode.FINDINGS if missing or gone or data["notWithdrawn"] else ExitCode.OK
    return Result(code, {**data, "refused": False}, lines)


def _confirmed(chosen: list[RecordSummary], orders: list[Item], terminal: Terminal) -> bool:
    for summary in chosen[:_LISTED_WHEN_ASKING]:
        terminal.note(described(summary))
    if len(chosen) > _LISTED_WHEN_ASKING:
        terminal.note(f"and {len(chosen) - _LISTED_WHEN_ASKING} more")
    for order in orders:
        terminal.note(described_order(order))
    if not chosen:
        return terminal.confirm(f"Withdraw {len(orders)} order(s)?")
    return terminal.confirm(f"Discard {len(chosen)} record(s) for good?")


async def _remove(
    chosen: list[RecordSummary], records: QuarantineAdmin, outbox: Outbox, removal: Removal, terminal: Terminal
) -> list[RecordSummary]:
    """Remove records; returns those that somebody else has removed."""
    progress = terminal.progress("discarded", len(chosen))
    gone = []
    for number, summary in enumerate(chosen, start=1):
        if not await records.remove(summary, outbox, removal):
            gone.append(summary)
        progress.update(number)
    if chosen:
        progress.finish(len(chosen) - len(gone))
    return gone


async def _unpark(discarded: list[RecordSummary], records: QuarantineAdmin) -> tuple[list[str], list[str]]:
    """Unpark the keys that have no record left; returns them, and those that are still parked."""
    keys = {summary.partition_key for summary in discarded}
    parked = [key for key in await records.parked() if key in keys] if keys else []
    unparked = [key for key in parked if await records.unpark(key)]
    return unparked, [key for key in parked if key not in unparked]


@app.command(help_epilogue=epilogue(ADD_EXAMPLES))
async def add(
    key: str,
    event_id: Annotated[str, Parameter(name="ID")],
    /,
    *,
    yes: Yes = False,
    force: bool = False,
    options: OneOutbox = OneOutbox(),
    session: Session,
) -> Result:
    """Order the relay to set an event aside, after looking it up and asking.

    Args:
        key: the event's partition key
        event_id: the id of the event's document
        force: write the order even if the event is not found
    """
    terminal = session.terminal
    if not yes:
        terminal.require_answers()
    backend = await generations.backend_of_event(options.backend(session.environment), key, event_id)
    async with _opened(backend) as (records, outbox):
        found = await outbox.find(key, event_id)
        remarks = _remarks(found, key, event_id, backend.settings)
        data = {"partitionKey": key, "id": event_id, "found": found is not None, "passed": None, "ordered": False}
        if found is not None and found.is_taken:
            data["passed"] = found.passed
        elif not force:
            return Result(ExitCode.FINDINGS, data, [*remarks, "Nothing was ordered."])
        if not yes:
            for remark in remarks:
                terminal.note(remark)
            if not terminal.confirm(f"Set the event {event_id!r} of partition key {key!r} aside?"):
                return Result(ExitCode.FINDINGS, data, ["Nothing was ordered."])
        done = await records.order(key, event_id, () if found is None else found.places)
    lines = remarks if yes else []
    if done is Ordered.CARRIED_OUT:
        return Result(ExitCode.OK, data, [*lines, f"{done}: the event {event_id!r} is in quarantine, or was"])
    lines = [*lines, f"{done}: the relay sets the event {event_id!r} aside at its next attempt"]
    return Result(ExitCode.OK, {**data, "ordered": True}, lines)


def _remarks(found: Found | None, key: str, event_id: str, settings: Settings) -> list[str]:
    """Return facts to consider before an event is set aside."""
    if found is None:
        return [
            f"The outbox has no document {event_id!r} with the partition key {key!r}: it has expired or was "
            "deleted, or the key or the id is misspelt. --force writes the order anyway."
        ]
    if not settings.selection.has_type(found.type):
        return [
            f"The document {event_id!r} is of the type {found.type!r}, not {settings.selection.types_text}: the "
            "relay does not publish it. --force writes the order anyway."
        ]
    if not found.is_taken:
        return [
            f"The rules give the document {event_id!r} to another stream than {settings.stream!r}, or to none. "
            "--force writes the order anyway."
        ]
    if found.passed:
        return [
            "The relay has already passed this event, according to its checkpoint: the event was published or is "
            "in quarantine. The order has no effect unless the event is delivered again."
        ]
    return ["No checkpoint shows whether the relay has already passed this event."] if found.passed is None else []
