"""`python -m local watch`: follow the events of the running stack, of all its streams or of one."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import aiohttp
from cyclopts import Parameter

from local.sending.routed import streams_of
from local.stack.arguments import EnvFile
from local.stack.lock import DEFAULT_ENV_FILE, READY, NoStackError, how_to_start, settings_of_running
from local.watching.changes import ENDED, Change, Changes, staleness
from outbox_relay.command_line import number, positive, printable, python, value
from outbox_relay.emulators.process import Stopped, until_done
from outbox_relay.operator.cli.routes_report import target_of
from outbox_relay.operator.console.overview import path_of
from relay.config.settings import Settings
from relay.config.streams import stream_of
from relay.core.errors import SettingsError, UsageError

_CONNECT_TIMEOUT_S = 10.0
# The stream says something every ten seconds.
_SILENCE_S = 30.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `watch`.

    Attributes:
        key: only events of this partition key, also those before the latest 50 of all
        stream: only this stream of relay.toml; all of them by default
        timeout: seconds after which it ends, with exit code 1
        json: a JSON object a line
    """

    count: Annotated[
        int | None,
        value(
            positive,
            metavar="N",
            help="end after the relay is done with N events, also earlier ones; with several streams, an event "
            "counts once in each of those that are watched",
        ),
    ] = None
    key: Annotated[str | None, Parameter(metavar="KEY")] = None
    stream: Annotated[str | None, Parameter(metavar="NAME")] = None
    timeout: Annotated[float | None, value(number, metavar="S")] = None
    json: bool = False
    env_file: EnvFile = DEFAULT_ENV_FILE


async def run(*, options: Options = Options()) -> int:
    """Print changes until Ctrl-C or `--count` (0), until `--timeout` or the stack's end (1); 2 without a stack."""
    try:
        settings = settings_of_running(options.env_file)
        if READY not in settings:
            raise NoStackError(
                f"The stack of {options.env_file} has no console that could be watched, such as that of `demo`. "
                f"{how_to_start(options.env_file)}."
            )
        followed = _followed(streams_of(settings), options.stream)
    except (NoStackError, SettingsError, UsageError) as error:
        print(error, file=sys.stderr)
        return 2
    watching = Watching(options.key, options.count, as_json=options.json)
    page = settings[READY].removesuffix("/ready")
    query = "" if options.key is None else f"?key={quote(options.key, safe='')}"
    try:
        async with asyncio.timeout(options.timeout):
            await until_done(
                _follow(watching, {f"{page}{each.path}/events.json{query}": each for each in followed})
            )
    except Stopped:
        return 0
    except (aiohttp.ClientError, EOFError) as error:
        print(f"The local stack does not answer any more: {error or type(error).__name__}", file=sys.stderr)
        return 1
    except TimeoutError:
        print(f"{watching.progress(options.timeout or 0)} {_next(options.env_file)}", file=sys.stderr)
        return 1
    return 0


def _next(env_file: Path) -> str:
    """Return the command that says what keeps events."""
    return f"`{python()} -m relay check --env-file {shlex.quote(str(env_file))}` says whether anything keeps it."


@dataclass(frozen=True, slots=True)
class Followed:
    """A stream whose events are followed.

    Attributes:
        path: The address of its page, without the slash at its end.
        name: Of the stream; None if the stack has no other one.
        title: The stream in words, as wide as those of the others; empty if the stack has no other one.
        is_queue: Whether its destination is a queue.
    """

    path: str = ""
    name: str | None = None
    title: str = ""
    is_queue: bool = False


def _followed(streams: list[Settings], name: str | None) -> Sequence[Followed]:
    """Return the stream of this name, or all streams. Raises UsageError if there is none of this name."""
    chosen = streams if name is None else [stream_of(streams, name)]
    if len(streams) == 1:
        return [Followed(is_queue=chosen[0].servicebus.is_queue)]
    titles = [f"{each.stream} → {target_of(each).removeprefix('the ')}" for each in chosen]
    width = max(map(len, titles))
    return [
        Followed(path_of(each.stream), each.stream, f"{title:<{width}}", each.servicebus.is_queue)
        for each, title in zip(chosen, titles, strict=True)
    ]


async def _follow(watching: Watching, streams: Mapping[str, Followed]) -> None:
    """Print the changes of streams until there are enough, or one of them ends.

    Args:
        watching: Prints them.
        streams: By the address of its events.
    """
    following = [asyncio.create_task(watching.follow(_events(url), each)) for url, each in streams.items()]
    try:
        done, _ = await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)


class Watching:
    """Prints the changes of streams of events."""

    def __init__(self, key: str | None, count: int | None, *, as_json: bool) -> None:
        """Create one.

        Args:
            key: The partition key whose events are streamed; None for every key.
            count: Number of events after which it ends, each counted in each of its streams; None for no end.
            as_json: False prints lines for a person, below headings on standard error.
        """
        self._key = key
        self._count = count
        self._as_json = as_json
        self._done: set[tuple[str | None, str]] = set()
        self._heading = ""

    async def follow(self, events: AsyncIterator[tuple[str, Any]], stream: Followed = Followed()) -> None:
        """Print the changes of a stream's events, by the name and data of each message, until there are enough."""
        changes, is_past = Changes(), True
        async for name, data in events:
            if self._has_enough:
                return
            if name == "known":
                of = f"{stream.name}: " if stream.name is not None else ""
                print(f"{of}{staleness(data)}", file=sys.stderr, flush=True)
            elif name == "now":
                is_past = False
            else:
                for change in changes.of(data):
                    self._print(change, stream, is_past)
                if self._has_enough:
                    return

    @property
    def _has_enough(self) -> bool:
        return self._count is not None and len(self._done) >= self._count

    def _print(self, change: Change, stream: Followed, is_past: bool) -> None:
        heading = "So far:" if is_past else "From now on:"
        if heading != self._heading and not self._as_json:
            self._heading = heading
            print(heading, file=sys.stderr, flush=True)
        if self._as_json:
            line = change.as_json(stream.name, earlier=is_past)
        else:
            line = change.as_line(stream.title, of_queue=stream.is_queue)
        print(line, flush=True)
        if change.what in ENDED:
            self._done.add((stream.name, change.id))

    def progress(self, seconds: float) -> str:
        """Return how far it came in these seconds, for one that was ended by `--timeout`."""
        of_key = "" if self._key is None else printable(f" of {self._key}")
        events = f"{len(self._done)} event{'' if len(self._done) == 1 else 's'}{of_key}"
        wanted = "" if self._count is None else f", not yet with {self._count}"
        return f"After {seconds:g} s the relay is done with {events}{wanted}."


async def _events(url: str) -> AsyncGenerator[tuple[str, Any], None]:
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
