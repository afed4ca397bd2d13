"""`python -m relay deadletters list | show | discard | resubmit`."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence

from outbox_relay.operator.cli import deadletters_resubmit
from outbox_relay.operator.cli.arguments import Commands, one_stream, positive
from outbox_relay.operator.cli.deadletter_selection import (
    NOT_LOCKED,
    Choice,
    add_choice,
    add_filter,
    asked,
    explained,
    find,
    name,
    named,
    opened,
    rows,
    subscriptions_of,
)
from outbox_relay.operator.cli.shell import as_json
from outbox_relay.operator.cli.terminal import ExitCode, Result, Terminal
from outbox_relay.operator.deadletters.letter import DeadLetter, body, described
from outbox_relay.operator.deadletters.queue import DeadLetterQueue
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from relay.config.settings import Settings

_DEFAULT_LIMIT = 100

EXAMPLES = """\
examples:
  python -m relay deadletters list
  python -m relay deadletters list --reason MaxDeliveryCountExceeded --json | jq -r '.deadLetters[].name'
  python -m relay deadletters show all/17 --data
  python -m relay deadletters discard all/17 --yes
  python -m relay deadletters resubmit --subscription all --reason MaxDeliveryCountExceeded

`python -m relay deadletters COMMAND --help` describes each command. To handle dead letters where they are, without
sending them again, run the consumer's own handler on them: docs/dead-letters.md says how."""

LIST_EXAMPLES = """\
examples:
  python -m relay deadletters list --subscription all --limit 20
  python -m relay deadletters list --partition-key b5e2e7aa-4982-4735-9422-c39a7c4af5c2

Lists the dead letters, the oldest first. They are peeked: none is locked or removed, and what others have locked
is listed too. ENQUEUED is when the topic accepted the message; Service Bus does not say when it was
dead-lettered."""

SHOW_EXAMPLES = """\
examples:
  python -m relay deadletters show all/17
  python -m relay deadletters show all/17 --data --json | jq -r .deadLetter.data"""

DISCARD_EXAMPLES = """\
examples:
  python -m relay deadletters discard all/17 all/18
  python -m relay deadletters discard --subscription all --reason TTLExpiredException --yes

The messages are deleted, and the consumers of the subscription never get these events: `show` them first. Without
--yes the command asks, and exits with code 2 if standard input is no terminal."""


def add_to(commands: Commands) -> None:
    summary = "manage the dead letters of the topic's subscriptions, or of the queue"
    group = commands.group("deadletters", summary, EXAMPLES)
    listing = group.add("list", "list the dead letters, the oldest first", LIST_EXAMPLES, _list, one_stream=True)
    add_filter(listing)
    listing.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        default=_DEFAULT_LIMIT,
        help="at most this many (default: %(default)s)",
    )
    showing = group.add("show", "show one dead letter with its properties", SHOW_EXAMPLES, _show, one_stream=True)
    showing.add_argument("name", type=name, metavar="NAME", help="the dead letter, as `list` names it")
    showing.add_argument("--data", action="store_true", help="show its body too")
    add_choice(
        group.add("discard", "delete dead letters, after asking", DISCARD_EXAMPLES, discard, one_stream=True)
    )
    deadletters_resubmit.add_to(group)


async def _list(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """List the dead letters that pass the filter, the oldest first."""
    settings = one_stream(arguments, environment)
    choice = Choice.filter(arguments)
    subscriptions = await subscriptions_of(settings, arguments, environment)
    found = await find(settings, subscriptions, choice, terminal)
    shown = found[: arguments.limit]
    count = str(len(found)) if len(shown) == len(found) else f"{len(shown)} of {len(found)}"
    data = {
        "total": len(found),
        "subscriptions": subscriptions,
        "deadLetters": [letter.data() for letter in shown],
    }
    lines = rows(shown)
    where = ", ".join(map(repr, subscriptions)) or "no subscription"
    return Result(ExitCode.OK, data, [*lines, *([""] if lines else []), f"{count} dead letter(s) in {where}"])


async def _show(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Show one dead letter; its body only on request, as it may be personal."""
    settings = one_stream(arguments, environment)
    [subscription] = named(settings, [arguments.name])
    number = arguments.name.rpartition("/")[2]
    async with (
        opened(settings) as client,
        explained(settings, subscription),
        DeadLetterQueue(client, ReceivingEntity.of(settings, subscription)) as queue,
    ):
        found = [each async for each in queue.peek([int(number)])]
    if not found:
        return Result(ExitCode.FINDINGS, {"missing": [arguments.name]}, [f"{arguments.name} is no dead letter"])
    [(letter, encoded)] = found
    shown = {**letter.data(), **described(encoded), **({"data": body(encoded)} if arguments.data else {})}
    return Result(ExitCode.OK, {"deadLetter": shown}, as_json(shown, indent=2).split("\n"))


async def discard(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Delete the chosen dead letters."""
    choice = Choice.of(arguments)
    if not arguments.yes:
        terminal.require_answers()
    settings = one_stream(arguments, environment)
    subscriptions = await subscriptions_of(settings, arguments, environment, choice.names)
    found = await find(settings, subscriptions, choice, terminal)
    question = f"Discard {len(found)} dead letter(s) for good?"
    if found and not arguments.yes and not asked(found, (), question, terminal):
        data = {"discarded": [], "locked": [], "missing": choice.missing(found), "refused": True}
        return Result(ExitCode.FINDINGS, data, ["Nothing was discarded."])
    removed = await _remove(settings, found, terminal)
    return _discarded(found, removed, choice.missing(found))


async def _remove(settings: Settings, letters: Sequence[DeadLetter], terminal: Terminal) -> list[DeadLetter]:
    """Remove dead letters; returns those that were there, and locked by nobody else."""
    chosen: defaultdict[str, list[int]] = defaultdict(list)
    for letter in letters:
        chosen[letter.subscription].append(letter.sequence_number)
    removed: list[DeadLetter] = []
    progress = terminal.progress("discarded", len(letters))
    async with opened(settings) as client:
        for subscription, numbers in chosen.items():
            async with (
                explained(settings, subscription),
                DeadLetterQueue(client, ReceivingEntity.of(settings, subscription)) as queue,
            ):
                async for letter in queue.remove(numbers):
                    removed.append(letter)
                    progress.update(len(removed))
    return removed


def _discarded(found: Sequence[DeadLetter], removed: Sequence[DeadLetter], missing: Sequence[str]) -> Result:
    names = {letter.name for letter in removed}
    left = [letter.name for letter in found if letter.name not in names]
    lines = [*rows(removed), f"discarded {len(removed)}"]
    lines += [f"{each} was not discarded: {NOT_LOCKED}" for each in left]
    lines += [f"{each} is no dead letter" for each in missing]
    data = {
        "discarded": [letter.name for letter in removed],
        "locked": left,
        "missing": list(missing),
        "refused": False,
    }
    return Result(ExitCode.FINDINGS if left or missing else ExitCode.OK, data, lines)
