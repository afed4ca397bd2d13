"""The commands of operators on parked keys: `python -m inbox keys`, `show`, `release`, `discard`."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from inbox.parked import ParkedKey, ParkedMessage, encode
from inbox.parking import NotReleased
from inbox.stores.opening import FORMS, OpenedStore, StoreNotOpened, opened

STORE = "INBOX_STORE"

_PAGE = 1000
_DONE, _REFUSED, _USAGE = 0, 1, 2


class _Refused(Exception):
    """A command cannot be carried out: its text says why, and what to do."""


class _Misused(Exception):
    """The call is wrong: its text says how."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0 if it was carried out, 1 if it was refused, 2 if the call is wrong or the store cannot be opened.
    """
    for stream in (sys.stdout, sys.stderr):
        # What the terminal's encoding lacks is escaped, instead of ending the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    chosen = parser().parse_args(arguments)
    if not chosen.store:
        print(f"Give --store or set {STORE}: {FORMS}.", file=sys.stderr)
        return _USAGE
    try:
        asyncio.run(_run(chosen))
    except _Refused as refusal:
        print(refusal, file=sys.stderr)
        return _REFUSED
    except (_Misused, StoreNotOpened) as error:
        print(error, file=sys.stderr)
        return _USAGE
    return _DONE


async def _run(chosen: argparse.Namespace) -> None:
    if chosen.run is _release and chosen.all == (chosen.key is not None):
        raise _Misused("Give either a key, or --all for every parked key.")
    async with opened(chosen.store, chosen.consumer, chosen.schema) as parking:
        await chosen.run(parking, chosen)


# The commands.


async def _keys(parking: OpenedStore, chosen: argparse.Namespace) -> None:
    found = await parking.keys()
    if not found:
        await _check_consumer(parking, chosen)
    if chosen.json:
        print(json.dumps([_key_fields(each) for each in found]))
    elif not found:
        print("no key is parked")
    else:
        _table(
            ("KEY", "TOPIC", "SINCE", "MESSAGES", "STATE", "REASON", "ERROR"),
            [list(_key_fields(each).values()) for each in found],
        )


async def _show(parking: OpenedStore, chosen: argparse.Namespace) -> None:
    key = await _one(parking, chosen)
    listed = [_message_fields(each, data=chosen.data) async for each in _messages(parking, key)]
    fields = _key_fields(key)
    if chosen.data:
        fields["detail"] = key.cause.detail
    if chosen.json or chosen.data:
        print(json.dumps({**fields, "parked": listed}, indent=None if chosen.json else 2))
        return
    state = f"{_state(key)} since {_time(key.since)}"
    print(_shown(f"{key.key} of {key.topic}, {state}: {key.cause.reason} {key.cause.error}"))
    _table(
        ("NUMBER", "ID", "ENQUEUED", "ATTEMPTS", ""),
        [
            (
                each["number"],
                each["id"],
                each["enqueuedAt"] or "",
                each["attempts"],
                "" if each["whole"] else _PLACE,
            )
            for each in listed
        ],
    )


_PLACE = "only its place: the message is in the dead-letter queue"


async def _release(parking: OpenedStore, chosen: argparse.Namespace) -> None:
    keys = await parking.keys() if chosen.all else [await _one(parking, chosen)]
    if not keys:
        await _check_consumer(parking, chosen)
        print("no key is parked")
    refused = []
    for key in keys:
        try:
            if await parking.release(key.topic, key.key):
                what = f"released {key.key!r} of {key.topic}"
                print(_shown(f"{what}: a running receiver hands over its messages, in order"))
        except NotReleased as refusal:
            refused.append(str(refusal))
    if refused:
        raise _Refused("\n".join(map(_shown, refused)))


async def _discard(parking: OpenedStore, chosen: argparse.Namespace) -> None:
    key = await _one(parking, chosen)
    if chosen.whole_key:
        shown = [replace(each, message=None) async for each in _messages(parking, key)]
        what = f"all {len(shown)} message(s)"
    else:
        shown = await parking.messages(key.topic, key.key, limit=1)
        what = "".join(f"message {each.id!r}, number {each.number}," for each in shown)
    question = f"Discard {what} of the key {key.key!r} of {key.topic} for good? Type yes to continue: "
    if not chosen.yes and not _confirmed(_shown(question)):
        raise _Refused("Nothing was discarded: confirm it, or give --yes.")
    count = 0
    # Only what was shown: neither what was set aside meanwhile, nor what is first now.
    for start in range(0, len(shown), _PAGE):
        count += len(await parking.discard(key.topic, key.key, shown[start : start + _PAGE]))
    left = "is still parked" if await parking.is_parked(key.topic, key.key) else "is no longer parked"
    said = f"discarded {count}; the key {key.key!r} of {key.topic} {left}"
    if count < len(shown):
        gone = f"{len(shown) - count} of {len(shown)} shown message(s) were handled or discarded meanwhile"
        raise _Refused(_shown(f"{said}; {gone}"))
    print(_shown(said))


# Their parts.


def parser() -> argparse.ArgumentParser:
    """Return the parser for the options of the commands."""
    parser = argparse.ArgumentParser(prog="python -m inbox", description="Manages the parked keys of a consumer.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    keys = commands.add_parser("keys", help="list the parked keys")
    keys.set_defaults(run=_keys)
    show = commands.add_parser("show", help="list the messages of a parked key")
    show.set_defaults(run=_show)
    show.add_argument("--data", action="store_true", help="with the exception's text, and all of each message")
    for command in (keys, show):
        command.add_argument("--json", action="store_true", help="print JSON")
    release = commands.add_parser("release", help="have the messages of a key handed to the handler, in order")
    release.set_defaults(run=_release)
    release.add_argument("--all", action="store_true", help="release every parked key")
    discard = commands.add_parser("discard", help="drop the first message of a parked key, for good")
    discard.set_defaults(run=_discard)
    discard.add_argument("--whole-key", action="store_true", help="drop all messages that the key has now")
    discard.add_argument("--yes", action="store_true", help="do not ask")
    for command in (show, release, discard):
        command.add_argument("key", metavar="KEY", nargs="?" if command is release else None)
        command.add_argument("--topic", help="the topic or queue, if the key is parked in several")
    for command in (keys, show, release, discard):
        command.add_argument(
            "--store", default=os.environ.get(STORE), help=f"{FORMS}; default: the variable {STORE}"
        )
        command.add_argument("--consumer", default="default", help="the consumer's name; default: default")
        command.add_argument(
            "--schema", help="the schema of the tables in PostgreSQL or SQL Server, if not the usual"
        )
    return parser


async def _check_consumer(parking: OpenedStore, chosen: argparse.Namespace) -> None:
    """Refuse to say that nothing is parked by a consumer that the store has never seen."""
    if not await parking.has_records():
        what = (
            f"The store has no record of the consumer {chosen.consumer!r}: it has handled and parked nothing, or"
        )
        raise _Refused(_shown(f"{what} --store, --schema or --consumer names another."))


async def _one(parking: OpenedStore, chosen: argparse.Namespace) -> ParkedKey:
    """Return the parked key that was named."""
    found = [
        each
        for each in await parking.keys()
        if each.key == chosen.key and (chosen.topic is None or each.topic == chosen.topic)
    ]
    if not found:
        await _check_consumer(parking, chosen)
        raise _Refused(_shown(f"The key {chosen.key!r} is not parked by the consumer {chosen.consumer!r}."))
    if len(found) > 1:
        topics = ", ".join(each.topic for each in found)
        raise _Refused(_shown(f"Give --topic: the key is parked in {topics}."))
    return found[0]


async def _messages(parking: OpenedStore, key: ParkedKey) -> AsyncIterator[ParkedMessage]:
    after: ParkedMessage | None = None
    while page := await parking.messages(key.topic, key.key, after=after, limit=_PAGE):
        for each in page:
            yield each
        after = page[-1]


def _confirmed(question: str) -> bool:
    try:
        return sys.stdin.isatty() and input(question).strip() == "yes"
    except EOFError:
        return False


def _key_fields(key: ParkedKey) -> dict[str, Any]:
    return {
        "key": key.key,
        "topic": key.topic,
        "since": _time(key.since),
        "messages": key.messages,
        "state": _state(key),
        "reason": key.cause.reason,
        "error": key.cause.error,
    }


def _message_fields(parked: ParkedMessage, *, data: bool) -> dict[str, Any]:
    message = parked.message
    fields: dict[str, Any] = {
        "number": parked.number,
        "id": parked.id,
        "enqueuedAt": _time(message.enqueued_at) if message and message.enqueued_at else None,
        "attempts": parked.attempts,
        "whole": message is not None,
    }
    if data and message is not None:
        fields["message"] = json.loads(encode(message))
        fields["text"] = message.body.decode(errors="replace")
    return fields


def _state(key: ParkedKey) -> str:
    return "released" if key.is_released else "parked"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    texts = [tuple(_shown(str(each)) for each in row) for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(heads))]
    for row in texts:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _shown(text: str) -> str:
    """Return text that may be of others, as a terminal can be given it.

    Characters that do not print are escaped.
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
