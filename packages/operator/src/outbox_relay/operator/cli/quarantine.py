"""`python -m relay quarantine list | show | release | discard | add`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.cli import generations
from outbox_relay.operator.cli.arguments import Commands, Parser, one_outbox, positive
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
from outbox_relay.operator.cli.shell import as_json
from outbox_relay.operator.cli.terminal import ExitCode, Result, Terminal, table
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


def add_to(commands: Commands) -> None:
    group = commands.group("quarantine", "manage documents that could not be published", EXAMPLES)
    summary = "list the quarantined documents, in order of arrival"
    listing = group.add("list", summary, LIST_EXAMPLES, _list, one_outbox=True)
    _add_filter(listing)
    listing.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        default=_DEFAULT_LIMIT,
        help="at most this many (default: %(default)s)",
    )
    showing = group.add("show", "show one record with its whole document", SHOW_EXAMPLES, _show, one_outbox=True)
    showing.add_argument(
        "id", metavar="ID", help=f"the id of the record, or its beginning, of at least {LEAST_ID} characters"
    )
    summary = "validate and publish documents, and remove accepted ones"
    _add_choice(group.add("release", summary, RELEASE_EXAMPLES, release, one_outbox=True))
    discarding = group.add("discard", "delete records, after asking", DISCARD_EXAMPLES, discard, one_outbox=True)
    _add_choice(discarding)
    discarding.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    discarding.add_argument("--why", metavar="TEXT", default="", help="why: the event's timeline shows it")
    adding = group.add("add", "order the relay to set an event aside", ADD_EXAMPLES, _add, one_outbox=True)
    adding.add_argument("key", metavar="KEY", help="the event's partition key")
    adding.add_argument("id", metavar="ID", help="the id of the event's document")
    adding.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    adding.add_argument("--force", action="store_true", help="write the order even if the event is not found")


def _add_filter(parser: Parser) -> None:
    reasons = [str(reason) for reason in Reason]
    parser.add_argument(
        "--reason", choices=reasons, metavar="REASON", help=f"only records with this reason: {', '.join(reasons)}"
    )
    parser.add_argument("--partition-key", metavar="KEY", help="only records of this partition key")


def _add_choice(parser: Parser) -> None:
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help=f"ids of records, or their beginnings, of at least {LEAST_ID} characters",
    )
    parser.add_argument("--all", action="store_true", help="every record, or every record of --partition-key")
    _add_filter(parser)


@asynccontextmanager
async def _opened(backend: OperatorBackend) -> AsyncIterator[tuple[QuarantineAdmin, Outbox]]:
    """The quarantine of a backend, and its outbox, which is not connected until it is read."""
    async with open_records(backend) as records:
        outbox = backend.open_outbox()
        try:
            yield records, outbox
        finally:
            await outbox.close()


async def _list(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """List the records in order of arrival; then the parked partition keys and the pending orders."""
    chosen = Filter(arguments.reason, arguments.partition_key)
    async with _opened(one_outbox(arguments, environment)) as (records, _):
        summaries = await records.find(chosen, arguments.limit)
        total = len(summaries) if len(summaries) < arguments.limit else await records.count(chosen)
        parked = list((await records.parked(chosen.partition_key)).values())
        orders = await records.orders(chosen.partition_key)
    lines = [line for each in _tables(summaries, parked, orders) if each for line in (*each, "")]
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
) -> tuple[list[str], ...]:
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
        table(("RECORD", "QUARANTINED", "REASON", "PARTITION KEY", "DOCUMENT"), records),
        table(("PARKED KEY", "SINCE", "BECAUSE OF"), keys),
        table(("ORDER TO SET ASIDE", "ORDERED", "PARTITION KEY", "DOCUMENT"), pending),
    )


async def _show(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Show the record whose id begins so, with its whole document."""
    async with _opened(one_outbox(arguments, environment)) as (records, _):
        summaries, _ = await records.find_by_ids([arguments.id])
        kept = await records.document(summaries[0]) if summaries else None
    if kept is None:
        return Result(ExitCode.FINDINGS, {"missing": [arguments.id]}, [f"{arguments.id} is not in quarantine"])
    record = {**summaries[0].data(), "document": kept.stored}
    return Result(ExitCode.OK, {"record": record}, as_json(record, indent=2).split("\n"))


def _check_choice(arguments: argparse.Namespace) -> None:
    if arguments.ids and (arguments.all or arguments.reason or arguments.partition_key):
        raise UsageError("give either ids, or --all, --reason and --partition-key, not both")
    if not arguments.ids and not arguments.all and not arguments.reason:
        raise UsageError("choose records: give ids, --reason or --all")


async def _chosen(
    arguments: argparse.Namespace, records: QuarantineAdmin, ids: Sequence[str]
) -> tuple[list[RecordSummary], list[str]]:
    """Return the records that the options choose, in order of arrival; of `ids`, also those that no record has."""
    if arguments.ids:
        return await records.find_by_ids(ids)
    return await records.find(Filter(arguments.reason, arguments.partition_key)), []


async def release(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Validate and publish the chosen documents, and remove the records of those that were accepted."""
    _check_choice(arguments)
    backend = one_outbox(arguments, environment)
    async with _opened(backend) as (records, outbox), ordered_sender(backend.settings) as sender:
        summaries, missing = await _chosen(arguments, records, arguments.ids)
        parked = await records.parked(arguments.partition_key)
        progress = terminal.progress("released", len(summaries))
        work = Release(records, sender, outbox, backend)
        await work.release([each for each in summaries if each.partition_key not in parked], progress)
        whole = arguments.all and arguments.reason is None
        for key in parked:
            chosen = {summary.id for summary in summaries if summary.partition_key == key}
            # A parked key without a record is one whose release was interrupted.
            if (chosen or whole) and not sender.gave_up:
                await work.release_parked(key, None if whole else chosen)
        progress.finish(len(work.released))
        return work.result(missing)


async def discard(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Remove records and withdraw orders; unpark the keys that have no record left."""
    _check_choice(arguments)
    if not arguments.yes:
        terminal.require_answers()
    async with _opened(one_outbox(arguments, environment)) as (records, outbox):
        of_orders = [each for each in arguments.ids if each.startswith(ORDER_PREFIX)]
        of_records = [each for each in arguments.ids if each not in of_orders]
        orders, missing_orders = await records.find_orders(of_orders)
        chosen, missing = await _chosen(arguments, records, of_records)
        missing += missing_orders
        data: dict[str, Any] = {
            "discarded": [],
            "withdrawn": [],
            "notWithdrawn": [],
            "unparked": [],
            "gone": [],
            "missing": missing,
        }
        if not arguments.yes and (chosen or orders) and not _confirmed(chosen, orders, terminal):
            return Result(ExitCode.FINDINGS, {**data, "refused": True}, ["Nothing was discarded."])
        removal = Removal.by_this_account(Outcome.DISCARDED, arguments.why)
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


async def _add(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Look up the event, ask for confirmation, and write the order."""
    if not arguments.yes:
        terminal.require_answers()
    key, event_id = arguments.key, arguments.id
    backend = await generations.backend_of_event(one_outbox(arguments, environment), key, event_id)
    async with _opened(backend) as (records, outbox):
        found = await outbox.find(key, event_id)
        remarks = _remarks(found, key, event_id, backend.settings)
        data = {"partitionKey": key, "id": event_id, "found": found is not None, "passed": None, "ordered": False}
        if found is not None and found.is_taken:
            data["passed"] = found.passed
        elif not arguments.force:
            return Result(ExitCode.FINDINGS, data, [*remarks, "Nothing was ordered."])
        if not arguments.yes:
            for remark in remarks:
                terminal.note(remark)
            if not terminal.confirm(f"Set the event {event_id!r} of partition key {key!r} aside?"):
                return Result(ExitCode.FINDINGS, data, ["Nothing was ordered."])
        done = await records.order(key, event_id, () if found is None else found.places)
    lines = remarks if arguments.yes else []
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
