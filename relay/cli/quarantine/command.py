"""`python -m relay quarantine list | show | release | discard | add`."""

from __future__ import annotations

import argparse
import json

from relay.cli.committed import open_outbox
from relay.cli.console import Console
from relay.cli.ordered import ordered_sender
from relay.cli.quarantine import release, set_aside
from relay.cli.quarantine.holdings import Order, Parked
from relay.cli.quarantine.parked_release import ParkedRelease
from relay.cli.quarantine.records import SHORT_ID, Filter, Head, Records, open_records
from relay.cli.quarantine.successors import Successors
from relay.cli.results import EXIT_CODES, ExitCode, Result
from relay.cosmos.holds import ORDER_PREFIX
from relay.errors import UsageError
from relay.events import Reason
from relay.settings import Settings

_DEFAULT_LIMIT = 100
_NAMED_WHEN_ASKING = 10
_SHORT_ORDER = len(ORDER_PREFIX) + SHORT_ID

EXAMPLES = """\
examples:
  python -m relay quarantine list
  python -m relay quarantine list --reason message-too-large --json | jq -r '.records[].id'
  python -m relay quarantine show 3f1c0a92b7d4
  python -m relay quarantine release --reason message-refused
  python -m relay quarantine discard 3f1c0a92b7d4 --yes
  python -m relay quarantine add KEY ID

`python -m relay quarantine COMMAND --help` tells more of each."""

LIST_EXAMPLES = """\
examples:
  python -m relay quarantine list --limit 20
  python -m relay quarantine list --partition-key b5e2e7aa-4982-4735-9422-c39a7c4af5c2

Records come in order of arrival, the oldest first, then the parked partition keys and the pending orders to set an
event aside. Their ids may be shortened wherever an id is asked for, as long
as one record only begins so."""

SHOW_EXAMPLES = """\
examples:
  python -m relay quarantine show 3f1c0a92b7d4
  python -m relay quarantine show 3f1c0a92b7d4 --json | jq .record.document"""

RELEASE_EXAMPLES = """\
examples:
  python -m relay quarantine release 3f1c0a92b7d4 9b20aa3c1188
  python -m relay quarantine release --reason message-too-large   (after the namespace went to Premium)
  python -m relay quarantine release --all --partition-key b5e2e7aa-4982-4735-9422-c39a7c4af5c2

Each document is validated as the app would, and published as the app would, in order of arrival. A record is
removed only after Service Bus has accepted its event, so repeating a release is harmless: what was accepted but
not removed is dropped as a duplicate, within the topic's window. What is still invalid stays, with the reason it
has now, and does not hold up the others. When a send fails, the rest of that partition key waits for the next
release. Consumers receive a released event after those that its partition key had in the meantime; the output says
where there were any.

A parked partition key (RELAY_ON_POISON=park) is released in order, and goes on by itself once no record of it is
left: --all --partition-key KEY releases what comes meanwhile too. There a record that is still invalid, or not
chosen, holds up those behind it: discard it, or release it first."""

DISCARD_EXAMPLES = """\
examples:
  python -m relay quarantine discard 3f1c0a92b7d4
  python -m relay quarantine discard --reason id-too-long --yes
  python -m relay quarantine discard set-aside:3f1c0a92b7d4   (withdraws an order of `quarantine add`)

What is behind a discarded record of a parked partition key stays parked until it is released or discarded too.

The documents are gone then: subscribers never learn of these events. `show` them first. Without --yes it asks,
and where nobody can be asked it refuses (exit code 2)."""


def add_arguments(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """The subcommands and their options; `common` has the options that every command takes."""
    commands = parser.add_subparsers(dest="quarantine_command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, examples: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            parents=[common],
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"{examples}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    listing = add("list", "list what is in quarantine, in order of arrival", LIST_EXAMPLES)
    _add_filter(listing)
    listing.add_argument(
        "--limit", type=_positive, default=_DEFAULT_LIMIT, help=f"how many, at most ({_DEFAULT_LIMIT})"
    )
    showing = add("show", "show one record with its whole document", SHOW_EXAMPLES)
    showing.add_argument("id", metavar="ID", help="the record's id, or its beginning")
    _add_choice(add("release", "validate again, publish, and remove what was accepted", RELEASE_EXAMPLES))
    discarding = add("discard", "remove records for good, after asking", DISCARD_EXAMPLES)
    _add_choice(discarding)
    discarding.add_argument("--yes", action="store_true", help="do not ask")
    set_aside.add_arguments(add("add", "have the relay set an event aside", set_aside.EXAMPLES))


def _add_filter(parser: argparse.ArgumentParser) -> None:
    reasons = [str(reason) for reason in Reason]
    parser.add_argument(
        "--reason", choices=reasons, metavar="REASON", help=f"only with this reason: {', '.join(reasons)}"
    )
    parser.add_argument("--partition-key", metavar="KEY", help="only of this partition key")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids of records, or their beginnings")
    parser.add_argument("--all", action="store_true", help="every record, or every one of --partition-key")
    _add_filter(parser)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


async def run(arguments: argparse.Namespace, settings: Settings, console: Console) -> Result:
    """Run the subcommand.

    Raises:
        UsageError: The choice of records makes no sense, or nobody can be asked.
        ServiceError: The quarantine container cannot be read or written.
    """
    if arguments.quarantine_command in ("release", "discard"):
        _check_choice(arguments)
    if arguments.quarantine_command == "discard" and not arguments.yes and not console.can_ask:
        raise UsageError("nobody can be asked, as standard input is no terminal: add --yes")
    async with open_records(settings) as records:
        match arguments.quarantine_command:
            case "list":
                return await _list(records, Filter(arguments.reason, arguments.partition_key), arguments.limit)
            case "show":
                return await _show(records, arguments.id)
            case "release":
                return await _release(arguments, settings, records, console)
            case "add":
                return await set_aside.run(arguments, settings, records, console)
        return await _discard(arguments, records, console)


def _check_choice(arguments: argparse.Namespace) -> None:
    if arguments.ids and (arguments.all or arguments.reason or arguments.partition_key):
        raise UsageError(
            "name records by their ids, or choose them by --all, --reason and --partition-key: not both"
        )
    if not arguments.ids and not arguments.all and not arguments.reason:
        raise UsageError("say which records: ids, --reason or --all")


async def _chosen(arguments: argparse.Namespace, records: Records) -> tuple[list[Head], list[str]]:
    if arguments.ids:
        return await records.named(arguments.ids)
    return await records.heads(Filter(arguments.reason, arguments.partition_key)), []


async def _list(records: Records, chosen: Filter, limit: int) -> Result:
    heads = await records.heads(chosen, limit)
    total = len(heads) if len(heads) < limit else await records.count(chosen)
    parked = list((await records.holdings.parked(chosen.partition_key)).values())
    orders = await records.holdings.orders(chosen.partition_key)
    lines = [_line(head) for head in heads]
    lines += [_parked_line(each) for each in parked]
    lines += [_order_line(order) for order in orders]
    lines.append(f"{total} in quarantine" if total == len(heads) else f"{len(heads)} of {total} in quarantine")
    data = {
        "total": total,
        "records": [head.data() for head in heads],
        "parked": [each.data() for each in parked],
        "orders": [order.data() for order in orders],
    }
    return Result(ExitCode.OK, data, lines)


def _parked_line(parked: Parked) -> str:
    because = parked.because[:SHORT_ID]
    return f"parked since {parked.since[:19]}Z, because of {because}  partition key {parked.partition_key!r}"


def _order_line(order: Order) -> str:
    return (
        f"{order.id[:_SHORT_ORDER]}  {order.ordered_at[:19]}Z  pending  partition key {order.partition_key!r}, "
        f"document {order.event_id!r}"
    )


def _line(head: Head) -> str:
    document = "" if head.document_id is None else f", document {head.document_id!r}"
    at = head.quarantined_at[:19]
    return f"{head.id[:SHORT_ID]}  {at}Z  {head.reason}  partition key {head.partition_key!r}{document}"


async def _show(records: Records, beginning: str) -> Result:
    heads, _ = await records.named([beginning])
    document = await records.document(heads[0]) if heads else None
    if document is None:
        return _not_there([beginning])
    record = {**heads[0].data(), "document": document}
    lines = json.dumps(record, ensure_ascii=False, indent=2).split("\n")
    return Result(ExitCode.OK, {"record": record}, lines)


def _not_there(missing: list[str]) -> Result:
    return Result(
        ExitCode.FINDINGS, {"missing": missing}, [f"{identifier} is not in quarantine" for identifier in missing]
    )


async def _release(
    arguments: argparse.Namespace, settings: Settings, records: Records, console: Console
) -> Result:
    heads, missing = await _chosen(arguments, records)
    parked = await records.holdings.parked(arguments.partition_key)
    free = [head for head in heads if head.partition_key not in parked]
    progress = console.progress("released", len(heads))
    async with ordered_sender(settings) as sender, open_outbox(settings) as outbox:
        successors = Successors(outbox, records, settings.event_type)
        outcome = await release.release(records, sender, successors, free, settings.event_type, progress)
        whole = arguments.all and arguments.reason is None
        in_order = ParkedRelease(records, sender, settings.event_type, outcome)
        for key in parked:
            chosen = {head.id for head in heads if head.partition_key == key}
            # A parked key without a record was cut off in the middle of its release.
            if (chosen or whole) and not sender.gave_up:
                await in_order.release(key, None if whole else chosen)
        progress.finish(len(outcome.released))
        return release.result_of(outcome, sender, missing)


async def _discard(arguments: argparse.Namespace, records: Records, console: Console) -> Result:
    orders, arguments.ids, unknown = await _named_orders(arguments.ids, records)
    heads, missing = ([], []) if orders and not arguments.ids else await _chosen(arguments, records)
    missing += unknown
    if (heads or orders) and not arguments.yes and not _sure(heads, orders, console):
        data = {"discarded": [], "withdrawn": [], "unparked": [], "missing": missing, "refused": True}
        return Result(ExitCode.FINDINGS, data, ["Nothing was discarded."])
    progress = console.progress("discarded", len(heads))
    for number, head in enumerate(heads, start=1):
        await records.remove(head)
        progress.update(number)
    if heads:
        progress.finish(len(heads))
    for order in orders:
        await records.holdings.withdraw(order)
    unparked, parked = await _unpark(heads, records)
    lines = [f"discarded {len(heads)}"] if heads or not orders else []
    lines += [f"withdrew the order {order.id[:_SHORT_ORDER]}" for order in orders]
    lines += [f"partition key {key!r} is parked no more" for key in unparked]
    lines += [f"partition key {key!r} stays parked until its other records are released" for key in parked]
    lines += [f"{identifier} is not in quarantine" for identifier in missing]
    data = {
        "discarded": [head.id for head in heads],
        "withdrawn": [order.id for order in orders],
        "unparked": unparked,
        "missing": missing,
        "refused": False,
    }
    return Result(ExitCode.FINDINGS if missing else ExitCode.OK, data, lines)


async def _named_orders(ids: list[str], records: Records) -> tuple[list[Order], list[str], list[str]]:
    """The orders among `ids`; the ids that are of records; those of orders that are not there."""
    named = [identifier for identifier in ids if identifier.startswith(ORDER_PREFIX)]
    others = [identifier for identifier in ids if identifier not in named]
    if not named:
        return [], others, []
    pending = await records.holdings.orders()
    found: dict[tuple[str, str], Order] = {}
    unknown = []
    for beginning in named:
        matching = [order for order in pending if order.id.startswith(beginning)]
        if len(matching) > 1:
            raise UsageError(f"{len(matching)} orders begin with {beginning!r}: give more of the id")
        found |= {(order.partition_key, order.id): order for order in matching}
        unknown += [] if matching else [beginning]
    return list(found.values()), others, unknown


async def _unpark(heads: list[Head], records: Records) -> tuple[list[str], list[str]]:
    """Let go on those parked keys that have no record left; returns them, and those that have."""
    unparked: list[str] = []
    parked: list[str] = []
    if heads:
        its_keys = {head.partition_key for head in heads}
        for key in await records.holdings.parked():
            if key in its_keys:
                (unparked if await records.holdings.unpark(key) else parked).append(key)
    return unparked, parked


def _sure(heads: list[Head], orders: list[Order], console: Console) -> bool:
    for head in heads[:_NAMED_WHEN_ASKING]:
        console.note(_line(head))
    if len(heads) > _NAMED_WHEN_ASKING:
        console.note(f"and {len(heads) - _NAMED_WHEN_ASKING} more")
    for order in orders:
        console.note(_order_line(order))
    if not heads:
        return console.confirm(f"Withdraw {len(orders)} order(s)?")
    return console.confirm(f"Discard {len(heads)} record(s) for good?")
