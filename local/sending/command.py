"""`python -m local send`: commit an event of your own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from urllib.parse import quote

from local.sending.event import Event, WordError, parse_fields
from local.sending.outboxes import open_writer
from local.sending.routed import event_type, streams_of, why_ignored
from local.sending.writer import NotCommittedError
from local.stack.lock import add_option, option
from local.stack.settings import READY, NoStackError, of_running
from outbox import InvalidDocument
from outbox_emulators.command_line import positive
from outbox_emulators.shell import printable, python
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
    parser.add_argument("--type", help="type of the document (default: the one that the relay takes)")
    parser.add_argument("--id", help="id of the event, with a single one (default: a random UUID)")
    add_option(parser)


async def run(arguments: argparse.Namespace) -> int:
    """Commit events and print their ids: 0; 1 when one is refused; 2 on wrong usage, or without a stack."""
    try:
        fields = parse_fields(arguments.fields, arguments.data)
        if arguments.id and arguments.count > 1:
            raise WordError("--id is the id of one event: leave it out with --count.")
        settings = of_running(arguments.env_file)
        streams = streams_of(settings)
        kind = arguments.type or event_type(streams)
    except (WordError, NoStackError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        async with open_writer(settings) as writer:
            for _ in range(arguments.count):
                given = {"id": arguments.id} if arguments.id else {}
                event = Event(arguments.key, arguments.action, fields, kind, **given)
                sequence = await writer.commit(event)
                print(event.id, flush=True)
    except (NotCommittedError, InvalidDocument) as error:
        print(error, file=sys.stderr)
        return 1
    if why := why_ignored(event, streams):
        print(f"The relay does not publish it: {printable(why)}.", file=sys.stderr)
    print(_next(arguments, sequence, settings), file=sys.stderr)
    return 0


def _next(arguments: argparse.Namespace, sequence: int, settings: Mapping[str, str]) -> str:
    """Return the result, and the command to run next."""
    what = f"Committed {arguments.action} as number {sequence} of {arguments.key}."
    if arguments.count > 1:
        what = f"Committed {arguments.count} events of {arguments.key}, the last as number {sequence}."
    if READY not in settings:
        return what
    page = f"{settings[READY].removesuffix('ready')}key?key={quote(arguments.key, safe='')}"
    return f"{what} See where it is: {page}, or {python()} -m local watch{option(arguments.env_file)}"
