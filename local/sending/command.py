"""`python -m local send`: commit an event of your own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import Annotated
from urllib.parse import quote

from cyclopts import Parameter

from local.sending.event import Commit, Event, NotCommittedError, WordError, parse_fields
from local.sending.outboxes import open_writer
from local.sending.routed import Outbox, streams_of
from local.stack.arguments import EnvFile, Positive
from local.stack.lock import DEFAULT_ENV_FILE, READY, NoStackError, option, settings_of_running
from outbox_relay.command_line import printable, python
from outbox_relay.operator.console.overview import path_of
from outbox_relay.operator.examples import Unplaceable
from outbox_relay.outbox import InvalidDocument
from relay.config.settings import Settings
from relay.core.errors import SettingsError


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `send`.

    Attributes:
        count: how many events, each in its own transaction
        type: type of the document (default: one that the relay takes)
        outbox: an outbox of relay.toml (default: the first)
        id: id of the event, with a single one (default: a random UUID)
        json: print a JSON object a line
    """

    data: Annotated[
        str | None,
        Parameter(
            metavar="JSON|@FILE",
            help="the data as a JSON object, or the file that has it, @- for standard input; single fields take "
            "precedence",
        ),
    ] = None
    count: Positive = 1
    type: Annotated[str | None, Parameter(metavar="TYPE")] = None
    outbox: Annotated[str | None, Parameter(metavar="NAME")] = None
    id: Annotated[str | None, Parameter(metavar="ID")] = None
    json: bool = False
    env_file: EnvFile = DEFAULT_ENV_FILE


async def run(
    key: str,
    action: str,
    /,
    *fields: Annotated[
        str, Parameter(name="NAME=VALUE", help="a field of the data; NAME:=JSON for other than a string")
    ],
    options: Options = Options(),
) -> int:
    """Commit events and print their ids: 0; 1 when one is refused; 2 on wrong usage, or without a stack.

    Args:
        key: partition key: its events stay in order
        action: what happened, such as ContactRenamed
    """
    try:
        data = parse_fields(list(fields), options.data)
        if options.id and options.count > 1:
            raise WordError("--id is the id of one event: leave it out with --count.")
        settings = settings_of_running(options.env_file)
        streams = streams_of(settings)
        outbox = Outbox.of(streams, options.outbox)
    except (WordError, NoStackError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        async with open_writer(outbox) as writer:
            for _ in range(options.count):
                given = {"id": options.id} if options.id else {}
                event = Event(key, action, data, options.type, **given)
                commit = await writer.commit(event)
                identifier = commit.document.fields["id"]
                print(as_json(commit, outbox) if options.json else identifier, flush=True)
    except (NotCommittedError, InvalidDocument, Unplaceable) as error:
        said = f"relay.toml: {error}" if isinstance(error, Unplaceable) else error
        print(said, file=sys.stderr)
        return 1
    if options.json:
        return 0
    if why := outbox.why_ignored(commit.document):
        print(f"The relay does not publish it: {printable(why)}.", file=sys.stderr)
    of_several = outbox.taker(commit.document) if len(streams) > 1 else None
    print(_next(key, action, options, commit, settings, of_several), file=sys.stderr)
    return 0


def as_json(commit: Commit, outbox: Outbox) -> str:
    """Return the line of an event: `stream` is the first that takes it, `ignored` why none publishes it."""
    stream = outbox.taker(commit.document)
    return dumps(
        {
            "id": commit.document.fields["id"],
            "number": commit.number,
            "stream": None if stream is None else stream.stream,
            "ignored": outbox.why_ignored(commit.document),
        }
    )


def _next(
    key: str,
    action: str,
    options: Options,
    commit: Commit,
    settings: Mapping[str, str],
    stream: Settings | None = None,
) -> str:
    """Return the result, and the command to run next; `stream` is that of the page, where there are several."""
    number = "" if commit.number is None else f" as number {commit.number}"
    what = f"Committed {action}{number or ' as an event'} of {key}."
    if options.count > 1:
        last = f", the last{number}" if number else ""
        what = f"Committed {options.count} events of {key}{last}."
    if READY not in settings:
        return what
    of_stream = "" if stream is None else f"{path_of(stream.stream)[1:]}/"
    page = f"{settings[READY].removesuffix('ready')}{of_stream}key?key={quote(key, safe='')}"
    return f"{what} See where it is: {page}, or {python()} -m local watch{option(options.env_file)}"
