"""The dead letters that a command works on: its options, the subscriptions, and what they hold."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient
from cyclopts import Parameter

from outbox_relay.command_line import Table, value
from outbox_relay.operator.cli.options import Administration, Ids, Key
from outbox_relay.operator.cli.servicebus_checks import (
    ServiceBusFacts,
    cannot_list,
    read_servicebus,
    receiving_refused,
)
from outbox_relay.operator.cli.terminal import Terminal
from outbox_relay.operator.deadletters.letter import NO_REASON, DeadLetter, iso
from outbox_relay.operator.deadletters.queue import HELD, DeadLetterQueue
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from relay.backends.findings import Gap
from relay.config.clients import administration_address, servicebus_client
from relay.config.settings import Settings
from relay.core.errors import UsageError

_LISTED_WHEN_ASKING = 10
NOT_LOCKED = (
    f"another receiver has locked or removed it, or {HELD} dead letters are before it. Run `list`, and then the "
    "command again."
)

_NAME = re.compile(r"([\w./-]+)/(\d+)", re.ASCII)


def _name(text: str) -> str:
    """Check the name of a dead letter. Raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no dead letter: write it as all/17, as `list` shows it")
    return text


Name = Annotated[str, value(_name, name="NAME", help="a dead letter, as `list` names it")]
"""The name of a dead letter."""

All = Annotated[bool, Parameter(help="every dead letter, or every one of --subscription")]
"""The option that chooses all dead letters."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options that choose dead letters.

    Attributes:
        reason: only dead letters with this reason
        partition_key: only dead letters of this partition key
        id: only this message id; may be repeated
    """

    subscription: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME",
            help="only this subscription; may be repeated (default: all of the topic, if the Manage right lets "
            "the command find them)",
        ),
    ] = ()
    reason: Annotated[str | None, Parameter(metavar="REASON")] = None
    partition_key: Key = None
    id: Ids = ()
    administration: Administration = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters: those of the names, or those that the filter lets pass."""

    names: frozenset[str] = frozenset()
    reason: str | None = None
    partition_key: str | None = None
    ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, selection: Selection, names: Sequence[str] = (), *, all: bool = False) -> Choice:
        """Return the choice of `discard` and `resubmit`. Raises UsageError if nothing is chosen, or twice."""
        filtered = selection.reason or selection.partition_key or selection.id
        if names and (all or filtered or selection.subscription):
            raise UsageError("give either names, or --all, --subscription, --reason, --partition-key and --id")
        if not names and not all and not filtered:
            raise UsageError("choose dead letters: give names, --reason, --partition-key, --id or --all")
        return cls.filter(selection, names)

    @classmethod
    def filter(cls, selection: Selection, names: Sequence[str] = ()) -> Choice:
        """Return the choice of `list`."""
        return cls(frozenset(names), selection.reason, selection.partition_key, frozenset(selection.id))

    def has(self, letter: DeadLetter) -> bool:
        if self.names:
            return letter.name in self.names
        return (
            self.reason in (None, letter.reason or NO_REASON)
            and self.partition_key in (None, letter.partition_key)
            and (not self.ids or letter.id in self.ids)
        )

    def numbers(self, subscription: str) -> list[int] | None:
        """Return the sequence numbers named in a subscription, or None if dead letters are chosen otherwise."""
        if not self.names:
            return None
        named = (each.rpartition("/") for each in self.names)
        return sorted(int(number) for its, _, number in named if its == subscription)

    def missing(self, found: Iterable[DeadLetter]) -> list[str]:
        """Return the names that no dead letter has."""
        return sorted(self.names - {letter.name for letter in found})


async def read_topic(settings: Settings, selection: Selection, environment: Mapping[str, str]) -> ServiceBusFacts:
    """Read the topic and its subscriptions, as far as these rights allow."""
    address = administration_address(selection.administration, environment, settings.servicebus.setting)
    return await read_servicebus(settings, address)


async def subscriptions_of(
    settings: Settings, selection: Selection, environment: Mapping[str, str], names: Iterable[str] = ()
) -> list[str]:
    """Return the subscriptions to look into.

    They are the wanted ones, those of the names, or all of the topic; or the queue.

    Raises:
        UsageError: None is wanted, and those of the topic cannot be listed; or one of a queue.
        ServiceError: None is wanted, and Service Bus does not answer.
    """
    if given := named(settings, [*(f"{each}/0" for each in selection.subscription), *names]):
        return given
    if settings.servicebus.is_queue:
        return [settings.servicebus.entity]
    found = (await read_topic(settings, selection, environment)).subscriptions
    if isinstance(found, Gap):
        raise cannot_list(settings, found)
    return sorted(each.name for each in found)


def named(settings: Settings, names: Iterable[str]) -> list[str]:
    """Return the subscriptions of dead letters with these names.

    Raises UsageError for one that a queue cannot have.
    """
    found = sorted({each.rpartition("/")[0] for each in names})
    queue = settings.servicebus.entity
    if settings.servicebus.is_queue and found not in ([], [queue]):
        raise UsageError(
            f"{settings.servicebus.destination} has no subscriptions: its dead letters are named as {queue}/17"
        )
    return found


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[ServiceBusClient]:
    client = servicebus_client(settings.servicebus.connection)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def explained(settings: Settings, subscription: str) -> AsyncIterator[None]:
    """Raise errors of the SDK as those of a command that say what to do."""
    try:
        yield
    except (AzureError, OSError) as error:
        raise receiving_refused(error, settings, subscription) from error


async def find(
    settings: Settings, subscriptions: Sequence[str], choice: Choice, terminal: Terminal
) -> list[DeadLetter]:
    """Find the chosen dead letters, the oldest first. They are peeked: none is locked.

    Raises:
        UsageError, ServiceError: A subscription is missing, or may not be received from.
    """
    found: list[DeadLetter] = []
    progress, seen = terminal.progress("dead letters read", None), 0
    async with opened(settings) as client:
        for subscription in subscriptions:
            async with (
                explained(settings, subscription),
                DeadLetterQueue(client, ReceivingEntity.of(settings, subscription)) as queue,
            ):
                async for letter, _ in queue.peek(choice.numbers(subscription)):
                    seen += 1
                    progress.update(seen)
                    if choice.has(letter):
                        found.append(letter)
    return sorted(found, key=attrgetter("enqueued_at", "order", "subscription", "sequence_number"))


def tabulate(letters: Sequence[DeadLetter]) -> Table:
    """Return a table of dead letters."""
    cells = [
        (
            each.name,
            iso(each.enqueued_at),
            str(each.delivery_count),
            each.reason or NO_REASON,
            each.partition_key or "-",
            each.id or "-",
            each.description or "",
        )
        for each in letters
    ]
    header = ("DEAD LETTER", "ENQUEUED", "DELIVERIES", "REASON", "PARTITION KEY", "MESSAGE ID", "DESCRIPTION")
    return Table(header, cells)


def asked(letters: Sequence[DeadLetter], remarks: Sequence[str], question: str, terminal: Terminal) -> bool:
    """Show what is chosen, and ask."""
    for line in (*tabulate(letters[:_LISTED_WHEN_ASKING]).lines(), *_more(letters), *remarks):
        terminal.note(line)
    return terminal.confirm(question)


def _more(letters: Sequence[DeadLetter]) -> list[str]:
    left = len(letters) - _LISTED_WHEN_ASKING
    return [f"and {left} more"] if left > 0 else []
