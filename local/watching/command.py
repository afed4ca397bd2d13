"""`python -m local watch`: follow the events of the running stack."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from local.stack.lock import add_option, how_to_start
from local.stack.settings import READY, NoStackError, of_running
from local.watching.changes import ENDED, Change, Changes, staleness
from outbox_emulators.command_line import positive
from outbox_emulators.process import Stopped, until_done
from outbox_emulators.shell import printable, python

_CONNECT_TIMEOUT_S = 10.0
# The stream says something every ten seconds.
_SILENCE_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch`."""
    parser.add_argument(
        "--count", type=positive, metavar="N", help="end after the relay is done with N events, also earlier ones"
    )
    parser.add_argument(
        "--key", metavar="KEY", help="only events of this partition key, also those before the latest 50 of all"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds after which it ends, with exit code 1")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    add_option(parser)


async def run(arguments: argparse.Namespace) -> int:
    """Print changes until Ctrl-C or `--count` (0), until `--timeout` or the stack's end (1); 2 without a stack."""
    try:
        settings = of_running(arguments.env_file)
        if READY not in settings:
            raise NoStackError(
                f"The stack of {arguments.env_file} has no console that could be watched, such as that of `demo`. "
                f"{how_to_start(arguments.env_file)}."
            )
    except NoStackError as error:
        print(error, file=sys.stderr)
        return 2
    watching = Watching(arguments.key, arguments.count, as_json=arguments.json)
    query = "" if arguments.key is None else f"?key={quote(arguments.key, safe='')}"
    url = f"{settings[READY].removesuffix('ready')}events.json{query}"
    try:
        async with asyncio.timeout(arguments.timeout):
            await until_done(watching.follow(_events(url)))
    except Stopped:
        return 0
    except (aiohttp.ClientError, EOFError) as error:
        print(f"The local stack does not answer any more: {error or type(error).__name__}", file=sys.stderr)
        return 1
    except TimeoutError:
        print(f"{watching.progress(arguments.timeout)} {_next(arguments.env_file)}", file=sys.stderr)
        return 1
    return 0


def _next(env_file: Path) -> str:
    """Return the command that says what keeps events."""
    return f"`{python()} -m relay check --env-file {shlex.quote(str(env_file))}` says whether anything keeps it."


class Watching:
    """Prints the changes of a stream of events."""

    def __init__(self, key: str | None, count: int | None, *, as_json: bool) -> None:
        """Create one.

        Args:
            key: The partition key whose events are streamed; None for every key.
            count: Number of events after which it ends; None for no end.
            as_json: False prints lines for a person, below headings on standard error.
        """
        self._key = key
        self._count = count
        self._as_json = as_json
        self._changes = Changes()
        self._done: set[str] = set()
        self._is_past = True
        self._heading = ""

    async def follow(self, events: AsyncIterator[tuple[str, Any]]) -> None:
        """Print the changes of the events, by the name and data of each message, until it has enough of them."""
        async for name, data in events:
            if name == "known":
                print(staleness(data), file=sys.stderr, flush=True)
            elif name == "now":
                self._is_past = False
            else:
                for change in self._changes.of(data):
                    self._print(change)
                if self._count is not None and len(self._done) >= self._count:
                    return

    def _print(self, change: Change) -> None:
        heading = "So far:" if self._is_past else "From now on:"
        if heading != self._heading and not self._as_json:
            self._heading = heading
            print(heading, file=sys.stderr, flush=True)
        print(change.as_json(earlier=self._is_past) if self._as_json else change.as_line(), flush=True)
        if change.what in ENDED:
            self._done.add(change.id)

    def progress(self, seconds: float) -> str:
        """Return how far it came in these seconds, for one that was ended by `--timeout`."""
        of_key = "" if self._key is None else printable(f" of {self._key}")
        events = f"{len(self._done)} event{'' if len(self._done) == 1 else 's'}{of_key}"
        wanted = "" if self._count is None else f", not yet with {self._count}"
        return f"After {seconds:g} s the relay is done with {events}{wanted}."


async def _events(url: str) -> AsyncIterator[tuple[str, Any]]:
    """Yield the name and the data of each message of a stream of server-sent events.

    Raises EOFError at its end.
    """
    event = ""
    timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_TIMEOUT_S, sock_read=_SILENCE_S)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"event: "):
                event = line.removeprefix(b"event: ").decode().strip()
            elif line.startswith(b"data: "):
                yield event, json.loads(line.removeprefix(b"data: "))
                event = ""
    raise EOFError("it ended the stream")
