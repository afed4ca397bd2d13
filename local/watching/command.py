"""`python -m local watch`: follow the events of the running stack."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from local.stack.lock import add_option, how_to_start
from local.stack.settings import READY, NoStackError, of_running
from local.watching.changes import ENDED, Change, Changes, staleness
from outbox_emulators.command_line import positive
from outbox_emulators.process import Stopped, until_done

_CONNECT_TIMEOUT_S = 10.0
# The stream says something every ten seconds.
_SILENCE_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch`."""
    parser.add_argument("--count", type=positive, metavar="N", help="end after the relay is done with N events")
    parser.add_argument("--key", metavar="KEY", help="only events of this partition key")
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
    try:
        async with asyncio.timeout(arguments.timeout):
            await until_done(_watch(f"{settings[READY].removesuffix('ready')}events.json", arguments))
    except Stopped:
        return 0
    except TimeoutError:
        print(f"That was not all within {arguments.timeout:g} s.", file=sys.stderr)
        return 1
    except (aiohttp.ClientError, EOFError) as error:
        print(f"The local stack does not answer any more: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


async def _watch(url: str, arguments: argparse.Namespace) -> None:
    changes = Changes()
    done: set[str] = set()
    async for event, tracked in _events(url):
        if event == "known":
            print(staleness(tracked), file=sys.stderr, flush=True)
            continue
        new = [change for change in changes.of(tracked) if arguments.key in (None, change.partition_key)]
        for change in new:
            print(change.as_json() if arguments.json else change.as_line(), flush=True)
        done |= {change.id for change in new if _ends(change)}
        if arguments.count is not None and len(done) >= arguments.count:
            return


def _ends(change: Change) -> bool:
    return change.what in ENDED


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
