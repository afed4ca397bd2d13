"""Publishes copies of dead letters, and removes each dead letter once its copy was seen in its subscription.

Nobody can send to one subscription alone: a copy goes to the topic, which gives it to every subscription. Within
its duplicate detection window the topic accepts a copy and drops it, so acceptance proves nothing.

At every moment an event is in the dead-letter queue, in the subscription, or in both. Killed after the send, the
next run finds the copy there; if a consumer was faster, the topic or the consumer drops the second one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

from azure.core.exceptions import AzureError

from outbox_relay.operator.deadletters.letter import DeadLetter, copy_of
from outbox_relay.operator.deadletters.lookout import Lookout, SessionBusyError
from outbox_relay.operator.deadletters.queue import DeadLetterQueue, Locked
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from relay.config.clients import servicebus_client
from relay.config.settings import Settings
from relay.core.deadline import SLOWEST_BYTES_S
from relay.core.errors import SendError, first_line
from relay.servicebus.messages import plain
from relay.servicebus.pipelined.lanes import Lane
from relay.servicebus.refusals import classify
from relay.servicebus.transfers import Transfer

# Partition keys at a time: each has a connection for each subscription.
_KEYS = 8
_OPEN_TIMEOUT_S = 15.0


class Fate(StrEnum):
    """The fate of a dead letter that was to be published again."""

    RESUBMITTED = "resubmitted"
    """Its copy was seen, and the dead letter is removed."""
    WAITING = "waiting"
    """A message with its id waits in the subscription: nothing was sent, and the dead letter is removed."""
    KEPT = "kept"
    """Its copy was seen; the lock on the dead letter was lost, so it is still there."""
    UNSEEN = "unseen"
    """The topic accepted a copy, which did not come."""
    BUSY = "busy"
    """A consumer holds its session."""
    FAILED = "failed"
    """The copy was not accepted."""
    LOCKED = "locked"
    """Somebody else has locked the dead letter."""
    NAMELESS = "nameless"
    """It has no message id, by which its copy would be recognised: nothing was sent."""
    BEHIND = "behind"
    """An earlier dead letter of its partition key was not published."""


@dataclass(slots=True)
class Event:
    """One event, which may be a dead letter in several subscriptions."""

    letters: list[Locked] = field(default_factory=list)

    @property
    def id(self) -> str:
        identifier = self.letters[0].letter.id
        assert identifier, "without an id, none is published"
        return identifier


class Resubmission:
    """Use it with `async with`; it opens the dead-letter queues.

    Attributes:
        fates: What became of each dead letter, by its name.
        errors: Why, by name, where an error says so.
    """

    def __init__(self, settings: Settings, subscriptions: Iterable[str], wait_s: float) -> None:
        """Create a resubmission; `wait_s`: time limit until a consumer releases a session, in seconds."""
        self._outlets = {name: ReceivingEntity.of(settings, name) for name in subscriptions}
        self._named_by = settings.servicebus.named_by
        self._timeout_s = settings.servicebus.send_timeout_s
        self._wait_s = wait_s
        self._client = servicebus_client(settings.servicebus.connection)
        self._sending = servicebus_client(settings.servicebus.connection, retry_total=0)
        self._lane = Lane(self._sending, settings.servicebus.entity, lambda _: None, _OPEN_TIMEOUT_S)
        self._queues = {name: DeadLetterQueue(self._client, each) for name, each in self._outlets.items()}
        self._stack = AsyncExitStack()
        self._free = asyncio.Semaphore(_KEYS)
        self.fates: dict[str, Fate] = {}
        self.errors: dict[str, str] = {}

    async def __aenter__(self) -> Resubmission:
        for client in (self._client, self._sending):
            self._stack.push_async_callback(client.close)
        self._stack.push_async_callback(self._lane.close)
        try:
            for queue in self._queues.values():
                await self._stack.enter_async_context(queue)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self, letters: Sequence[DeadLetter]) -> None:
        """Publish copies of these dead letters, those of a partition key in their order. May raise SDK errors."""
        self.fates = {letter.name: Fate.LOCKED if letter.id else Fate.NAMELESS for letter in letters}
        locked = await self._lock([letter for letter in letters if letter.id])
        async with asyncio.TaskGroup() as group:
            for key, chosen in _by_key(letters).items():
                group.create_task(self._run_key(key, chosen, locked))
        await self._remove_kept(locked)

    async def _lock(self, letters: Sequence[DeadLetter]) -> dict[str, Locked]:
        numbers: defaultdict[str, set[int]] = defaultdict(set)
        for letter in letters:
            numbers[letter.subscription].add(letter.sequence_number)
        return {
            each.letter.name: each
            for subscription, wanted in numbers.items()
            async for each in self._queues[subscription].receive(wanted)
        }

    async def _run_key(
        self, session_id: str | None, letters: Sequence[DeadLetter], locked: Mapping[str, Locked]
    ) -> None:
        """Publish the events of one partition key until one of them does not come through."""
        events = _events(letters, locked)
        behind = [each.name for each in letters if each.name in locked]
        self.fates |= dict.fromkeys(behind, Fate.BEHIND)
        if not events:
            return
        names = [each.letter.name for event in events for each in event.letters]
        async with self._free, AsyncExitStack() as stack:
            try:
                lookouts = await self._hold(session_id, events, stack)
            except SessionBusyError:
                self.fates |= dict.fromkeys(names, Fate.BUSY)
                return
            except (AzureError, OSError) as error:
                self._fail(names, error)
                return
            for event in events:
                if not await self._run_event(event, lookouts):
                    return

    async def _hold(
        self, session_id: str | None, events: Sequence[Event], stack: AsyncExitStack
    ) -> dict[str, Lookout]:
        first: dict[str, int] = {}
        for event in events:
            for each in event.letters:
                number = each.letter.sequence_number
                first[each.letter.subscription] = min(number, first.get(each.letter.subscription, number))
        lookouts = {}
        # In one order for all keys and all runs, so that no two wait for one another.
        for subscription in sorted(first):
            lookout = Lookout(self._sending, self._outlets[subscription], session_id)
            lookouts[subscription] = await stack.enter_async_context(lookout)
            await lookout.hold(self._wait_s, first[subscription])
        return lookouts

    async def _run_event(self, event: Event, lookouts: Mapping[str, Lookout]) -> bool:
        """Publish a copy where it is missing; returns whether the event is in each of its subscriptions."""
        here = [each for each in event.letters if lookouts[each.letter.subscription].waits(event.id)]
        missing = [each for each in event.letters if each not in here]
        try:
            await self._complete(here, Fate.WAITING)
            if missing:
                await self._send(event)
            for each in missing:
                if await lookouts[each.letter.subscription].sees(event.id):
                    await self._complete([each], Fate.RESUBMITTED)
                else:
                    self.fates[each.letter.name] = Fate.UNSEEN
        except (SendError, AzureError, OSError) as error:
            done = (Fate.WAITING, Fate.RESUBMITTED, Fate.KEPT)
            self._fail([name for name in _names(event) if self.fates[name] not in done], error)
        return not {Fate.UNSEEN, Fate.FAILED} & {self.fates[name] for name in _names(event)}

    async def _send(self, event: Event) -> None:
        copy = Transfer((), plain, copy_of(event.letters[0].encoded), 0)
        link = await self._lane.link(_OPEN_TIMEOUT_S)
        try:
            limit_s = self._timeout_s + len(copy.payload) // SLOWEST_BYTES_S
            await link.send(copy, limit_s, lambda: None, lambda: None)
        except TimeoutError as error:
            raise classify(error) from error

    async def _complete(self, letters: Iterable[Locked], fate: Fate) -> None:
        for each in letters:
            done = await self._queues[each.letter.subscription].complete(each)
            self.fates[each.letter.name] = fate if done else Fate.KEPT

    async def _remove_kept(self, locked: Mapping[str, Locked]) -> None:
        """Remove what came again because its lock was lost after its copy had been seen."""
        for subscription, queue in self._queues.items():
            kept = [
                each.letter.sequence_number
                for name, each in locked.items()
                if self.fates[name] is Fate.KEPT and each.letter.subscription == subscription
            ]
            async for letter in queue.remove(kept):
                self.fates[letter.name] = Fate.RESUBMITTED

    def _fail(self, names: Iterable[str], error: Exception) -> None:
        for name in names:
            self.fates[name] = Fate.FAILED
            self.errors[name] = first_line(classify(error).naming(self._named_by))


def _by_key(letters: Sequence[DeadLetter]) -> dict[str | None, list[DeadLetter]]:
    """Return dead letters by session, in the order in which the topic accepted them."""
    keys: defaultdict[str | None, list[DeadLetter]] = defaultdict(list)
    for letter in sorted(letters, key=lambda letter: (letter.order, letter.subscription, letter.sequence_number)):
        keys[letter.session_id].append(letter)
    return keys


def _events(letters: Sequence[DeadLetter], locked: Mapping[str, Locked]) -> list[Event]:
    """Return the events of these dead letters, up to the first one that is not locked."""
    events: dict[str | None, Event] = {}
    for letter in letters:
        if letter.name not in locked:
            break
        events.setdefault(letter.id, Event()).letters.append(locked[letter.name])
    return list(events.values())


def _names(event: Event) -> list[str]:
    return [each.letter.name for each in event.letters]
