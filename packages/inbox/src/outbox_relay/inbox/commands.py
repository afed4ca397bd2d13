"""The commands of operators on parked keys: `python -m outbox_relay.inbox keys`, `show`, `release`, `discard`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import App, Parameter

from outbox_relay.command_line import Call, Program, Table, as_json, printable
from outbox_relay.inbox import __version__
from outbox_relay.inbox.parking import NotReleased, ParkedKey, ParkedMessage, encode
from outbox_relay.inbox.stores.opening import FORMS, OpenedStore, StoreNotOpened, opened

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


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of every command.

    Attributes:
        json: print JSON
        consumer: the consumer's name
        schema: schema of the tables in PostgreSQL or SQL Server, if not the usual
    """

    json: bool = False
    store: Annotated[str | None, Parameter(help=f"{FORMS} (default: the variable {STORE})")] = None
    consumer: str = "default"
    schema: str | None = None


Parking = Annotated[OpenedStore, Parameter(parse=False)]
"""The store of a command."""

Key = Annotated[
    str, Parameter(name="KEY", help="the parked key, as `keys` lists it: the session id of its messages")
]
Topic = Annotated[str | None, Parameter(help="the topic or queue, if the key is parked in several")]


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
    call = PROGRAM.parse(sys.argv[1:] if arguments is None else arguments)
    options: Options = call.options["options"]
    try:
        asyncio.run(_run(call, options))
    except _Refused as refusal:
        return _report(refusal, options, _REFUSED)
    except (_Misused, StoreNotOpened) as error:
        return _report(error, options, _USAGE)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return _DONE


def _report(error: Exception, options: Options, code: int) -> int:
    """Print an error, with --json on standard output too; return the exit code."""
    print(error, file=sys.stderr)
    if options.json:
        print(as_json({**getattr(error, "values", {}), "error": str(error)}))
    return code


async def _run(call: Call, options: Options) -> None:
    store = options.store or os.environ.get(STORE)
    if not store:
        raise _Misused(f"Give --store or set {STORE}: {FORMS}.")
    if call.function is release and call.options["all"] == (call.positional != (None,)):
        raise _Misused("Give either a key, or --all for every parked key.")
    async with opened(store, options.consumer, options.schema) as parking:
        await call.function(*call.positional, **call.options, parking=parking)


# The commands.


async def keys(*, options: Options = Options(), parking: Parking) -> None:
    """List the parked keys."""
    found = await parking.keys()
    if not found:
        await _check_consumer(parking, options)
    if options.json:
        print(as_json([_key_fields(each) for each in found]))
    elif not found:
        print("no key is parked")
    else:
        head = ("KEY", "TOPIC", "SINCE", "MESSAGES", "STATE", "REASON", "ERROR")
        _print_table(head, [list(_key_fields(each).values()) for each in found])


async def show(
    key: Key,
    /,
    *,
    data: bool = False,
    topic: Topic = None,
    options: Options = Options(),
    parking: Parking,
) -> None:
    """List the messages of a parked key.

    Args:
        data: with the exception's text, and all of each message
    """
    found = await _one(parking, key, topic, options)
    listed = [_message_fields(each, data=data) async for each in _messages(parking, found)]
    fields = _key_fields(found)
    if data:
        fields["detail"] = found.cause.detail
    if options.json or data:
        print(as_json({**fields, "parked": listed}, indent=None if options.json else 2))
        return
    state = f"{_state(found)} since {_time(found.since)}"
    print(printable(f"{found.key} of {found.topic}, {state}: {found.cause.reason} {found.cause.error}"))
    _print_table(
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


async def release(
    key: Annotated[str | None, Parameter(name="KEY")] = None,
    /,
    *,
    all: bool = False,
    topic: Topic = None,
    options: Options = Options(),
    parking: Parking,
) -> None:
    """Have the messages of a key handed to the handler, in order.

    Args:
        key: the parked key, as `keys` lists it; not with --all
        all: release every parked key
    """
    chosen = await parking.keys() if key is None else [await _one(parking, key, topic, options)]
    if not chosen:
        await _check_consumer(parking, options)
        _say("no key is parked", options)
    released, refused = [], []
    for each in chosen:
        try:
            if await parking.release(each.topic, each.key):
                released.append({"key": each.key, "topic": each.topic})
                what = f"released {each.key!r} of {each.topic}"
                _say(f"{what}: a running receiver hands over its messages, in order", options)
        except NotReleased as refusal:
            refused.append(str(refusal))
    values = {"released": released, "refused": refused}
    if refused:
        raise _Refused("\n".join(map(printable, refused)), values)
    if options.json:
        print(as_json(values))


async def discard(
    key: Key,
    /,
    *,
    whole_key: bool = False,
    yes: bool = False,
    topic: Topic = None,
    options: Options = Options(),
    parking: Parking,
) -> None:
    """Drop the first message of a parked key, for good.

    Args:
        whole_key: drop all messages that the key has now
        yes: do not ask; required without a terminal
    """
    found = await _one(parking, key, topic, options)
    if whole_key:
        shown = [replace(each, message=None) async for each in _messages(parking, found)]
        what = f"all {len(shown)} message(s)"
    else:
        shown = await parking.messages(found.topic, found.key, limit=1)
        what = "".join(f"message {each.id!r}, number {each.number}," for each in shown)
    question = f"Discard {what} of the key {found.key!r} of {found.topic} for good? Type yes to continue: "
    if not yes and not _confirmed(printable(question)):
        raise _Refused("Nothing was discarded: confirm it, or give --yes.")
    count = 0
    # Only what was shown: neither what was set aside meanwhile, nor what is first now.
    for start in range(0, len(shown), _PAGE):
        count += len(await parking.discard(found.topic, found.key, shown[start : start + _PAGE]))
    is_parked = await parking.is_parked(found.topic, found.key)
    values = {"key": found.key, "topic": found.topic, "discarded": count, "parked": is_parked}
    left = "is still parked" if is_parked else "is no longer parked"
    said = f"discarded {count}; the key {found.key!r} of {found.topic} {left}"
    if count < len(shown):
        gone = f"{len(shown) - count} of {len(shown)} shown message(s) were handled or discarded meanwhile"
        raise _Refused(printable(f"{said}; {gone}"), values)
    _say(said, options)
    if options.json:
        print(as_json(values))


# Their parts.


def _add_commands(app: App) -> None:
    for function in (keys, show, release, discard):
        app.command(function)


PROGRAM = Program(
    module="outbox_relay.inbox",
    script="outbox-relay-inbox",
    summary="List, show, release and discard the parked keys of a consumer.",
    epilogue=f"`python -m outbox_relay.inbox COMMAND --help` describes each command.\n\n{_HELP}",
    version=f"outbox-relay-inbox {__version__}",
    add_commands=_add_commands,
)


def _say(text: str, options: Options) -> None:
    """Print a result for a person; with --json nothing."""
    if not options.json:
        print(printable(text))


async def _check_consumer(parking: OpenedStore, options: Options) -> None:
    """Refuse to say that nothing is parked by a consumer that the store has never seen."""
    if not await parking.has_records():
        what = (
            f"The store has no record of the consumer {options.consumer!r}: it has handled and parked nothing, or"
        )
        raise _Refused(printable(f"{what} --store, --schema or --consumer names another."))


async def _one(parking: OpenedStore, key: str, topic: str | None, options: Options) -> ParkedKey:
    """Return the parked key that was named."""
    found = [each for each in await parking.keys() if each.key == key and topic in (None, each.topic)]
    if not found:
        await _check_consumer(parking, options)
        raise _Refused(printable(f"The key {key!r} is not parked by the consumer {options.consumer!r}."))
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


def _print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print("\n".join(Table(head, [[str(each) for each in row] for row in rows], None).lines()))
