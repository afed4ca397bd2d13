"""`python -m relay deadletters list | show | discard | resubmit`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from outbox_relay.command_line import Table, as_json
from outbox_relay.operator.cli.deadletter_selection import (
    NOT_LOCKED,
    All,
    Choice,
    Name,
    Selection,
    asked,
    explained,
    find,
    named,
    opened,
    subscriptions_of,
    tabulate,
)
from outbox_relay.operator.cli.deadletters_resubmit import EXAMPLES as RESUBMIT_EXAMPLES
from outbox_relay.operator.cli.deadletters_resubmit import resubmit
from outbox_relay.operator.cli.options import Limit, OneStream, Session, Yes, command_app, epilogue
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


app = command_app("deadletters", EXAMPLES)


@app.command(name="list", help_epilogue=epilogue(LIST_EXAMPLES))
async def list_letters(
    *,
    selection: Selection = Selection(),
    limit: Limit = _DEFAULT_LIMIT,
    options: OneStream = OneStream(),
    session: Session,
) -> Result:
    """List the dead letters, the oldest first."""
    settings = options.settings(session.environment)
    subscriptions = await subscriptions_of(settings, selection, session.environment)
    found = await find(settings, subscriptions, Choice.filter(selection), session.terminal)
    shown = found[:limit]
    count = str(len(found)) if len(shown) == len(found) else f"{len(shown)} of {len(found)}"
    data = {
        "total": len(found),
        "subscriptions": subscriptions,
        "deadLetters": [letter.data() for letter in shown],
    }
    where = ", ".join(map(repr, subscriptions)) or "no subscription"
    return Result(
        ExitCode.OK, data, [tabulate(shown), *([""] if shown else []), f"{count} dead letter(s) in {where}"]
    )


@app.command(help_epilogue=epilogue(SHOW_EXAMPLES))
async def show(
    name: Name,
    /,
    *,
    with_body: Annotated[bool, Parameter(name="--data")] = False,
    options: OneStream = OneStream(),
    session: Session,
) -> Result:
    """Show one dead letter with its properties; its body only on request, as it may be personal.

    Args:
        with_body: show its body too
    """
    settings = options.settings(session.environment)
    [subscription] = named(settings, [name])
    number = name.rpartition("/")[2]
    async with (
        opened(settings) as client,
        explained(settings, subscription),
        DeadLetterQueue(client, ReceivingEntity.of(settings, subscription)) as queue,
    ):
        found = [each async for each in queue.peek([int(number)])]
    if not found:
        return Result(ExitCode.FINDINGS, {"missing": [name]}, [f"{name} is no dead letter"])
    [(letter, encoded)] = found
    shown = {**letter.data(), **described(encoded), **({"data": body(encoded)} if with_body else {})}
    return Result(ExitCode.OK, {"deadLetter": shown}, as_json(shown, indent=2).split("\n"))


@app.command(help_epilogue=epilogue(DISCARD_EXAMPLES))
async def discard(
    *names: Name,
    all: All = False,
    selection: Selection = Selection(),
    yes: Yes = False,
    options: OneStream = OneStream(),
    session: Session,
) -> Result:
    """Delete dead letters, after asking."""
    choice, terminal = Choice.of(selection, names, all=all), session.terminal
    if not yes:
        terminal.require_answers()
    settings = options.settings(session.environment)
    subscriptions = await subscriptions_of(settings, selection, session.environment, choice.names)
    found = await find(settings, subscriptions, choice, terminal)
    question = f"Discard {len(found)} dead letter(s) for good?"
    if found and not yes and not asked(found, (), question, terminal):
        data = {"discarded": [], "locked": [], "missing": choice.missing(found), "refused": True}
        return Result(ExitCode.FINDINGS, data, ["Nothing was discarded."])
    removed = await _remove(settings, found, terminal)
    return _discarded(found, removed, choice.missing(found))


app.command(resubmit, help_epilogue=epilogue(RESUBMIT_EXAMPLES))


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
    lines: list[str | Table] = [tabulate(removed), f"discarded {len(removed)}"]
    lines += [f"{each} was not discarded: {NOT_LOCKED}" for each in left]
    lines += [f"{each} is no dead letter" for each in missing]
    data = {
        "discarded": [letter.name for letter in removed],
        "locked": left,
        "missing": list(missing),
        "refused": False,
    }
    return Result(ExitCode.FINDINGS if left or missing else ExitCode.OK, data, lines)
