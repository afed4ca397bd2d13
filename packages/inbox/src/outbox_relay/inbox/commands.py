"""The commands of operators on parked keys: `python -m outbox_relay.inbox keys`, `show`, `release`, `discard`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from outbox_relay.inbox import shell
from outbox_relay.inbox.parking import NotReleased, ParkedKey, ParkedMessage, encode
from outbox_relay.inbox.shell import as_json, printable
from outbox_relay.inbox.stores.opening import FORMS, OpenedStore, StoreNotOpened, opened
from outbox_relay.inbox.version import __version__

STORE = "INBOX_STORE"

_PAGE = 1000
_DONE, _REFUSED, _USAGE, _INTERRUPTED = 0, 1, 2, 130

_HELP = """\
examples:
  python -m outbox_relay.inbox keys --store loans.sqlite
  python -m outbox_relay.inbox show title-7 --data
  python -m outbox_relay.inbox discard title-7
  python -m outbox_relay.inbox release title-7 --json
  python -m outbox_relay.inbox release --all

exit codes:
  0    done
  1    refused, all or in part; the output says why
  2    wrong usage, or the store cannot be opened; nothing was done
  130  interrupted (Ctrl-C)
  141  standard output was closed before all of it was written, as by head"""


_Command = Callable[[OpenedStore, argparse.Namespace], Awaitable[None]]


class _Refused(Exception):
    """A command cannot be carried out: its text says why, and what to do; `values` are those of its JSON."""

    def __init__(self, text: str, values: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.values = values or {}


class _Misused(Exception):
    """The call is wrong: its text says how."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0 if it was carried out, 1 if it was refused, 2 if the call is wrong or the store cannot be opened, 130 if
        it was interrupted.
    """
    chosen = parser().parse_args(arguments)
    try:
        asyncio.run(_run(chosen))
    except _Refused as refusal:
        return _report(refusal, chosen, _REFUSED)
    except (_Misused, StoreNotOpened) as error:
        return _report(error, chosen, _USAGE)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return _DONE


def _report(error: Exception, chosen: argparse.Namespace, code: int) -> int:
    """Print an error, with --json on standard output too; return the exit code."""
    print(error, file=sys.stderr)
    if chosen.json:
        print(as_json({**getattr(error, "values", {}), "error": str(error)}))
    return code


async def _run(chosen: argparse.Namespace) -> None:
    if not chosen.store:
        raise _Misused(f"Give --store or set {STORE}: {FORMS}.")
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
        print(as_json([_key_fields(each) for each in found]))
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
        print(as_json({**fields, "parked": listed}, indent=None if chosen.json else 2))
        return
    state = f"{_state(key)} since {_time(key.since)}"
    print(printable(f"{key.key} of {key.topic}, {state}: {key.cause.reason} {key.cause.error}"))
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
        _say("no key is parked", chosen)
    released, refused = [], []
    for key in keys:
        try:
            if await parking.release(key.topic, key.key):
                released.append({"key": key.key, "topic": key.topic})
                what = f"released {key.key!r} of {key.topic}"
                _say(f"{what}: a running receiver hands over its messages, in order", chosen)
        except NotReleased as refusal:
            refused.append(str(refusal))
    values = {"released": released, "refused": refused}
    if refused:
        raise _Refused("\n".join(map(printable, refused)), values)
    if chosen.json:
        print(as_json(values))


async def _discard(parking: OpenedStore, chosen: argparse.Namespace) -> None:
    key = await _one(parking, chosen)
    if chosen.whole_key:
        shown = [replace(each, message=None) async for each in _messages(parking, key)]
        what = f"all {len(shown)} message(s)"
    else:
        shown = await parking.messages(key.topic, key.key, limit=1)
        what = "".join(f"message {each.id!r}, number {each.number}," for each in shown)
    question = f"Discard {what} of the key {key.key!r} of {key.topic} for good? Type yes to continue: "
    if not chosen.yes and not _confirmed(printable(question)):
        raise _Refused("Nothing was discarded: confirm it, or give --yes.")
    count = 0
    # Only what was shown: neither what was set aside meanwhile, nor what is first now.
    for start in range(0, len(shown), _PAGE):
        count += len(await parking.discard(key.topic, key.key, shown[start : start + _PAGE]))
    is_parked = await parking.is_parked(key.topic, key.key)
    values = {"key": key.key, "topic": key.topic, "discarded": count, "parked": is_parked}
    left = "is still parked" if is_parked else "is no longer parked"
    said = f"discarded {count}; the key {key.key!r} of {key.topic} {left}"
    if count < len(shown):
        gone = f"{len(shown) - count} of {len(shown)} shown message(s) were handled or discarded meanwhile"
        raise _Refused(printable(f"{said}; {gone}"), values)
    _say(said, chosen)
    if chosen.json:
        print(as_json(values))


# Their parts.


def parser() -> argparse.ArgumentParser:
    """Return the parser for the options of the commands."""
    parser = shell.Parser(
        prog="python -m outbox_relay.inbox",
        description="List, show, release and discard the parked keys of a consumer.",
        epilog=f"`python -m outbox_relay.inbox COMMAND --help` describes each command.\n\n{_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"outbox-relay-inbox {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: _Command, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(run=run)
        added.add_argument("--json", action="store_true", help="print JSON")
        added.add_argument(
            "--store", default=os.environ.get(STORE), help=f"{FORMS} (default: the variable {STORE})"
        )
        added.add_argument("--consumer", default="default", help="the consumer's name (default: %(default)s)")
        added.add_argument("--schema", help="schema of the tables in PostgreSQL or SQL Server, if not the usual")
        return added

    command("keys", _keys, "list the parked keys")
    show = command("show", _show, "list the messages of a parked key")
    show.add_argument("--data", action="store_true", help="with the exception's text, and all of each message")
    release = command("release", _release, "have the messages of a key handed to the handler, in order")
    release.add_argument("--all", action="store_true", help="release every parked key")
    discard = command("discard", _discard, "drop the first message of a parked key, for good")
    discard.add_argument("--whole-key", action="store_true", help="drop all messages that the key has now")
    discard.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
    for each in (show, release, discard):
        optional = "; not with --all" if each is release else ""
        each.add_argument(
            "key",
            metavar="KEY",
            nargs="?" if each is release else None,
            help=f"the parked key, as `keys` lists it: the session id of its messages{optional}",
        )
        each.add_argument("--topic", help="the topic or queue, if the key is parked in several")
    return parser


def _say(text: str, chosen: argparse.Namespace) -> None:
    """Print a result for a person; with --json nothing."""
    if not chosen.json:
        print(printable(text))


async def _check_consumer(parking: OpenedStore, chosen: argparse.Namespace) -> None:
    """Refuse to say that nothing is parked by a consumer that the store has never seen."""
    if not await parking.has_records():
        what = (
            f"The store has no record of the consumer {chosen.consumer!r}: it has handled and parked nothing, or"
        )
        raise _Refused(printable(f"{what} --store, --schema or --consumer names another."))


async def _one(parking: OpenedStore, chosen: argparse.Namespace) -> ParkedKey:
    """Return the parked key that was named."""
    found = [
        each
        for each in await parking.keys()
        if each.key == chosen.key and (chosen.topic is None or each.topic == chosen.topic)
    ]
    if not found:
        await _check_consumer(parking, chosen)
        raise _Refused(printable(f"The key {chosen.key!r} is not parked by the consumer {chosen.consumer!r}."))
    if len(found) > 1:
        topics = ", ".join(each.topic for each in found)
        raise _Refused(printable(f"Give --topic: the key is parked in {topics}."))
    return found[0]


async def _messages(parking: OpenedStore, key: ParkedKey) -> AsyncIterator[ParkedMessage]:
    after: ParkedMessage | None = None
    while page := await parking.messages(key.topic, key.key, after=after, limit=_PAGE):
        for each in page:
            yield each
        after = page[-1]


def _confirmed(question: str) -> bool:
    try:
        if not sys.stdin.isatty():
            return False
        print(question, end="", file=sys.stderr, flush=True)
        return input().strip() == "yes"
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
    texts = [tuple(printable(str(each)) for each in row) for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(heads))]
    for row in texts:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
