"""`python -m relay quarantine list | show | release | discard | add`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import AsyncExitStack

from relay import assembly
from relay.cli import release, set_aside
from relay.cli.arguments import Commands, add_source, positive, with_one_outbox
from relay.cli.discard import discard, find_orders
from relay.cli.listing import list_records, show_record
from relay.cli.parked_release import ParkedRelease
from relay.cli.records import Records, open_records
from relay.cli.sender import ordered_sender
from relay.cli.terminal import Result, Terminal
from relay.errors import UsageError
from relay.events import Reason
from relay.outbox import Outbox
from relay.quarantine.items import Filter, RecordSummary
from relay.settings import Settings

_DEFAULT_LIMIT = 100

EXAMPLES = """\
examples:
  python -m relay quarantine list
  python -m relay quarantine list --reason message-too-large --json | jq -r '.records[].id'
  python -m relay quarantine show 3f1c0a92b7d4
  python -m relay quarantine release --reason message-refused
  python -m relay quarantine discard 3f1c0a92b7d4 --yes
  python -m relay quarantine add KEY ID

`python -m relay quarantine COMMAND --help` describes each command."""

LIST_EXAMPLES = """\
examples:
  python -m relay quarantine list --limit 20
  python -m relay quarantine list --partition-key b5e2e7aa-4982-4735-9422-c39a7c4af5c2

Lists the records in order of arrival, the oldest first, then the parked partition keys, then the pending orders to
set an event aside. Wherever a command takes an id, the beginning of the id is enough if only one record has it."""

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

The records behind a discarded record of a parked partition key stay parked until they are released or
discarded."""


def add_to(commands: Commands) -> None:
    """Add the command, its commands and their options."""
    group = commands.group("quarantine", "manage documents that could not be published", EXAMPLES)

    def add(name: str, summary: str, examples: str) -> argparse.ArgumentParser:
        made = group.add(name, summary, examples, run)
        add_source(made)
        return made

    listing = add("list", "list the quarantined documents, in order of arrival", LIST_EXAMPLES)
    _add_filter(listing)
    listing.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        default=_DEFAULT_LIMIT,
        help="at most this many (default: %(default)s)",
    )
    showing = add("show", "show one record with its whole document", SHOW_EXAMPLES)
    showing.add_argument("id", metavar="ID", help="the id of the record, or its beginning")
    _add_choice(add("release", "validate and publish documents, and remove accepted ones", RELEASE_EXAMPLES))
    discarding = add("discard", "delete records, after asking", DISCARD_EXAMPLES)
    _add_choice(discarding)
    discarding.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    set_aside.add_arguments(add("add", "order the relay to set an event aside", set_aside.EXAMPLES))


def _add_filter(parser: argparse.ArgumentParser) -> None:
    reasons = [str(reason) for reason in Reason]
    parser.add_argument(
        "--reason", choices=reasons, metavar="REASON", help=f"only records with this reason: {', '.join(reasons)}"
    )
    parser.add_argument("--partition-key", metavar="KEY", help="only records of this partition key")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids of records, or their beginnings")
    parser.add_argument("--all", action="store_true", help="every record, or every record of --partition-key")
    _add_filter(parser)


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Run the subcommand.

    Raises:
        UsageError: The options contradict each other, or confirmation is impossible.
        ServiceError: The quarantine container cannot be read or written.
    """
    settings = Settings.from_environment(environment)
    command = arguments.command.removeprefix("quarantine ")
    if command in ("release", "discard"):
        _check_choice(arguments)
    if command == "discard" and not arguments.yes and not terminal.can_ask:
        raise UsageError("cannot ask for confirmation, as standard input is no terminal: add --yes")
    settings = with_one_outbox(settings, arguments.source)
    async with AsyncExitStack() as stack:
        records = await stack.enter_async_context(open_records(settings))
        outbox = assembly.open_outbox(settings)
        stack.push_async_callback(outbox.close)
        match command:
            case "list":
                chosen = Filter(arguments.reason, arguments.partition_key)
                return await list_records(records, chosen, arguments.limit)
            case "show":
                return await show_record(records, arguments.id)
            case "release":
                return await _release(arguments, settings, records, outbox, terminal)
            case "add":
                return await set_aside.run(arguments, settings.event_type, records, outbox, terminal)
        return await _discard(arguments, records, terminal)


def _check_choice(arguments: argparse.Namespace) -> None:
    if arguments.ids and (arguments.all or arguments.reason or arguments.partition_key):
        raise UsageError("give either ids, or --all, --reason and --partition-key, not both")
    if not arguments.ids and not arguments.all and not arguments.reason:
        raise UsageError("choose records: give ids, --reason or --all")


async def _chosen(arguments: argparse.Namespace, records: Records) -> tuple[list[RecordSummary], list[str]]:
    if arguments.ids:
        return await records.find_by_ids(arguments.ids)
    return await records.find(Filter(arguments.reason, arguments.partition_key)), []


async def _release(
    arguments: argparse.Namespace, settings: Settings, records: Records, outbox: Outbox, terminal: Terminal
) -> Result:
    summaries, missing = await _chosen(arguments, records)
    parked = await records.holdings.parked(arguments.partition_key)
    free = [summary for summary in summaries if summary.partition_key not in parked]
    progress = terminal.progress("released", len(summaries))
    async with ordered_sender(settings) as sender:
        outcome = await release.release(records, sender, outbox, free, settings.event_type, progress)
        whole = arguments.all and arguments.reason is None
        in_order = ParkedRelease(records, sender, outbox, settings.event_type, outcome)
        for key in parked:
            chosen = {summary.id for summary in summaries if summary.partition_key == key}
            # A parked key without a record is one whose release was interrupted.
            if (chosen or whole) and not sender.gave_up:
                await in_order.release(key, None if whole else chosen)
        progress.finish(len(outcome.released))
        return release.result_of(outcome, sender, missing)


async def _discard(arguments: argparse.Namespace, records: Records, terminal: Terminal) -> Result:
    orders, arguments.ids, unknown = await find_orders(arguments.ids, records)
    only_orders = bool(orders) and not arguments.ids
    summaries, missing = ([], []) if only_orders else await _chosen(arguments, records)
    return await discard(records, summaries, orders, missing + unknown, terminal, ask=not arguments.yes)
