"""`python -m outbox_relay.changefeed`: install the schema, set up feeds, and look at them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NoReturn

from outbox_relay.changefeed import commands, shell
from outbox_relay.changefeed.connections import connect
from outbox_relay.changefeed.errors import ArgumentError, ChangefeedError, DatabaseError, FeedBusyError
from outbox_relay.changefeed.version import __version__

URL = "CHANGEFEED_URL"

_KEEP = "how long positions that every consumer has read are kept, such as 30d or 12h, or forever"
_DURATION = re.compile(r"([1-9][0-9]{0,4})([dh])")

_EXIT_CODES = """\
exit codes:
  0    done
  1    not done, try again: nothing came in time, another process is at work, or the database cannot be reached
  2    something has to be changed: the arguments, the settings or the schema
  130  interrupted (Ctrl-C)
  141  standard output was closed before all of it was written, as by head"""

_SQL = "print the statements instead of running them, for the owner of the database"

# URLs with a password, and passwords of connection strings.
_SECRETS = re.compile(r"\w+://[^\s@]*:[^\s@]*@\S*|(?i:\b(pwd|password)\s*=\s*[^;\s]+)")


def main(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Carry out one command; returns the exit code. Results go to standard output, errors to standard error."""
    parsed = _parser().parse_args(arguments)
    url = parsed.url or environment.get(URL, "")
    try:
        if not url:
            raise ArgumentError(f"there is no database to connect to. Set {URL}, or pass --url.")
        session = connect(url)
        try:
            outcome: commands.Outcome = parsed.command(session, parsed)
        finally:
            session.close()
    except ChangefeedError as error:
        code = 1 if isinstance(error, (DatabaseError, FeedBusyError)) else 2
        outcome = commands.Outcome({"error": _redacted(str(error), url)}, (), code)
        print(f"error: {shell.as_typed(shell.printable_lines(outcome.values['error']))}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    if parsed.json:
        print(shell.as_json({**outcome.values, "exitCode": outcome.code}, default=_jsonable))
    else:
        for line in outcome.lines:
            print(shell.printable(line))
    return outcome.code


def _redacted(message: str, url: str) -> str:
    """Return the message without any connection string."""
    for secret in (url, url.partition("://")[2].rpartition("@")[0].partition(":")[2]):
        if secret:
            message = message.replace(secret, "…")
    return _SECRETS.sub("…", message)


def _jsonable(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value.isoformat() if isinstance(value, (datetime, date)) else str(value)


class _Parser(shell.Parser):
    """Without connection strings in its errors, and with an example if a number is none."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("type", int, _whole_number)
        self.register("type", float, _number)

    def error(self, message: str) -> NoReturn:
        super().error(_redacted(message, ""))


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write it as 3") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: write it as 30 or 0.5") from None


def _duration(text: str) -> timedelta:
    """Parse the durations of `keep`, as the migrations do."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days or hours: write it as 30d or 12h")
    number = int(found[1])
    return timedelta(days=number) if found[2] == "d" else timedelta(hours=number)


def _days(text: str) -> timedelta:
    try:
        return timedelta(days=_number(text))
    except (OverflowError, ValueError):
        raise argparse.ArgumentTypeError(f"{text} days are more than the calendar has") from None


def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False)
    common.add_argument(
        "--url", help=f"postgresql://user@host/database, or Server=…;Database=…;… (default: the variable {URL})"
    )
    common.add_argument("--json", action="store_true", help="print one JSON object")
    parser = _Parser(
        prog="python -m outbox_relay.changefeed",
        description="Set up ordered feeds of what transactions committed, and read them.",
        epilog=f"`python -m outbox_relay.changefeed COMMAND --help` describes each command.\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"outbox-relay-changefeed {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: commands.Command, text: str) -> argparse.ArgumentParser:
        added = subparsers.add_parser(
            name,
            parents=[common],
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(command=function)
        return added

    installing = command("install", commands.install, "bring the schema changefeed up to date, and repair feeds")
    installing.add_argument("--sql", action="store_true", help=_SQL)
    setup = command("setup-feed", commands.setup_feed, "set up the feed of a table")
    setup.add_argument("table", metavar="TABLE", help="schema.Table")
    setup.add_argument(
        "--notify",
        action="store_true",
        help="PostgreSQL: commits wake readers, and writers pay for it",
    )
    setup.add_argument("--no-notify", action="store_true", help="readers look every 4 to 150 ms (default)")
    setup.add_argument("--no-roles", action="store_true", help="create no roles for writers and readers")
    setup.add_argument("--keep", required=True, metavar="DURATION", help=_KEEP)
    setup.add_argument("--sql", action="store_true", help=_SQL)
    keep = command("keep", commands.keep, "change how long the positions of a feed are kept")
    keep.add_argument("table", metavar="TABLE", help="schema.Table")
    keep.add_argument("duration", metavar="DURATION", help=_KEEP)
    drop = command("drop-feed", commands.drop_feed, "remove a feed with its outbox and positions")
    drop.add_argument("table", metavar="TABLE", help="schema.Table")
    drop.add_argument("--yes", action="store_true", required=True, help="confirm that it is to be removed")
    backfill = command("backfill", commands.backfill, "put the rows of a table that are not on its feed on it")
    backfill.add_argument("table", metavar="TABLE", help="schema.Table")
    backfill.add_argument(
        "--order-by", nargs="+", required=True, metavar="COLUMN", help="columns that sort the rows, oldest first"
    )
    backfill.add_argument(
        "--time-column", metavar="COLUMN", help="column with the times for the ULIDs (default: now)"
    )
    backfill.add_argument(
        "--shard", type=int, metavar="N", default=0, help="shard of all rows (default: %(default)s)"
    )
    backfill.add_argument(
        "--shard-column", metavar="COLUMN", help="instead of --shard: the column whose hash is the shard"
    )
    backfill.add_argument(
        "--shards",
        type=int,
        metavar="N",
        default=1,
        help="with --shard-column: how many shards there are (default: %(default)s)",
    )
    backfill.add_argument(
        "--chunk", type=int, metavar="ROWS", default=1000, help="rows in one transaction (default: %(default)s)"
    )
    backfill.add_argument(
        "--anyway", action="store_true", help="also if the rows come behind what was read or written before"
    )
    prune = command("prune", commands.prune, "delete old positions that every consumer has read")
    prune.add_argument("table", metavar="TABLE", help="schema.Table")
    age = prune.add_mutually_exclusive_group(required=True)
    age.add_argument(
        "--keep", type=_duration, metavar="DURATION", help="delete positions that are older, such as 30d or 12h"
    )
    age.add_argument(
        "--days", dest="keep", type=_days, metavar="N", help="the same in days; fractions are allowed"
    )
    for name, function, text in (
        ("read", commands.read, "print a page of a feed"),
        ("wait", commands.wait, "wait until there is something behind the cursor"),
    ):
        reader = command(name, function, text)
        reader.add_argument("feed", metavar="FEED", help="schema.Table, or the feed_id of generation 1")
        reader.add_argument(
            "--shard", type=int, metavar="N", default=0, help="the shard to read (default: %(default)s)"
        )
        reader.add_argument(
            "--cursor", help="the position to continue from, as a read printed it (default: the beginning)"
        )
        if name == "read":
            reader.add_argument(
                "--limit",
                type=int,
                metavar="N",
                default=100,
                help="at most this many, 1 to 1000 (default: %(default)s)",
            )
        else:
            reader.add_argument(
                "--timeout", type=float, metavar="S", default=30.0, help="seconds to wait (default: %(default)g)"
            )
    sweep = command("sweep", commands.sweep, "number the changes of generation 1, until interrupted")
    sweep.add_argument("--group", type=int, metavar="N", default=0, help="the sweep group (default: %(default)s)")
    sweep.add_argument("--once", action="store_true", help="number what is committed by now, and end")
    sweep.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        default=50.0,
        help="seconds between two reports (default: %(default)g)",
    )
    command("status", commands.status, "show feeds, consumers and sweep groups")
    return parser
