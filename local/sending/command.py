"""`python -m local send`: commit an event of your own."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from urllib.parse import quote

from local.sending.event import Event, WordError, parse_fields
from local.sending.outboxes import open_writer
from local.sending.routed import Outbox, streams_of
from local.sending.writer import Commit, NotCommittedError
from local.stack.lock import add_option, option
from local.stack.settings import READY, NoStackError, of_running
from outbox_relay.emulators.command_line import positive
from outbox_relay.emulators.shell import printable, python
from outbox_relay.operator.console.overview import path_of
from outbox_relay.operator.examples import Unplaceable
from outbox_relay.outbox import InvalidDocument
from relay.config.settings import Settings
from relay.core.errors import SettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `send`."""
    parser.add_argument("key", metavar="KEY", help="partition key: its events stay in order")
    parser.add_argument("action", metavar="ACTION", help="what happened, such as ContactRenamed")
    parser.add_argument(
        "fields",
        metavar="NAME=VALUE",
        nargs="*",
        default=[],
        help="a field of the data; NAME:=JSON for other than a string",
    )
    parser.add_argument(
        "--data",
        metavar="JSON|@FILE",
        help="the data as a JSON object, or the file that has it, @- for standard input; single fields take "
        "precedence",
    )
    parser.add_argument("--count", type=positive, default=1, help="how many events, each in its own transaction")
    parser.add_argument("--type", help="type of the document (default: one that the relay takes)")
    parser.add_argument("--outbox", metavar="NAME", help="an outbox of relay.toml (default: the first)")
    parser.add_argument("--id", help="id of the event, with a single one (default: a random UUID)")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")
    add_option(parser)


async def run(arguments: argparse.Namespace) -> int:
    """Commit events and print their ids: 0; 1 when one is refused; 2 on wrong usage, or without a stack."""
    try:
        fields = parse_fields(arguments.fields, arguments.data)
        if arguments.id and arguments.count > 1:
            raise WordError("--id is the id of one event: leave it out with --count.")
        settings = of_running(arguments.env_file)
        streams = streams_of(settings)
        outbox = Outbox.of(streams, arguments.outbox)
    except (WordError, NoStackError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        async with open_writer(outbox) as writer:
            for _ in range(arguments.count):
                given = {"id": arguments.id} if arguments.id else {}
                event = Event(arguments.key, arguments.action, fields, arguments.type, **given)
                commit = await writer.commit(event)
                identifier = commit.document.fields["id"]
                print(as_json(commit, outbox) if arguments.json else identifier, flush=True)
    except (NotCommittedError, InvalidDocument, Unplaceable) as error:
        said = f"relay.toml: {error}" if isinstance(error, Unplaceable) else error
        print(said, file=sys.stderr)
        return 1
    if arguments.json:
        return 0
    if why := outbox.why_ignored(commit.document):
        print(f"The relay does not publish it: {printable(why)}.", file=sys.stderr)
    of_several = outbox.taker(commit.document) if len(streams) > 1 else None
    print(_next(arguments, commit, settings, of_several), file=sys.stderr)
    return 0


def as_json(commit: Commit, outbox: Outbox) -> str:
    """Return the line of an event: `stream` is the first that takes it, `ignored` why none publishes it."""
    stream = outbox.taker(commit.document)
    return json.dumps(
        {
            "id": commit.document.fields["id"],
            "number": commit.number,
            "stream": None if stream is None else stream.stream,
            "ignored": outbox.why_ignored(commit.document),
        }
    )


def _next(
    arguments: argparse.Namespace, commit: Commit, settings: Mapping[str, str], stream: Settings | None = None
) -> str:
    """Return the result, and the command to run next; `stream` is that of the page, where there are several."""
    number = "" if commit.number is None else f" as number {commit.number}"
    what = f"Committed {arguments.action}{number or ' as an event'} of {arguments.key}."
    if arguments.count > 1:
        last = f", the last{number}" if number else ""
        what = f"Committed {arguments.count} events of {arguments.key}{last}."
    if READY not in settings:
        return what
    of_stream = "" if stream is None else f"{path_of(stream.stream)[1:]}/"
    page = f"{settings[READY].removesuffix('ready')}{of_stream}key?key={quote(arguments.key, safe='')}"
    return f"{what} See where it is: {page}, or {python()} -m local watch{option(arguments.env_file)}"
