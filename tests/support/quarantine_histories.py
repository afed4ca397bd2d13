"""Processes of the relay and an operator on one quarantine, and a model of what becomes of each event.

`World` runs the relay's pipeline and the operators' commands on a store of `tests/support/stores.py`. `Model` says
what they have to do when nobody interferes, and shares no code with them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import pytest

from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from outbox_relay.operator.cli.sender import OrderedSender
from outbox_relay.operator.console.model import Arrival, Delivery
from outbox_relay.operator.console.observer import Observer
from outbox_relay.operator.console.ports import Sources
from outbox_relay.operator.outcomes import OUTCOME_TYPE
from relay.config.settings import OnPoison
from relay.config.streams import read_streams
from relay.core.documents import StoredDocument
from relay.core.errors import PublishError, QuarantineError, StoreError
from relay.core.events import Reason
from relay.core.holds import ORDER_TYPE, PARKED_TYPE
from relay.core.pipeline import Relay
from relay.quarantine.items import ItemNotFound, Items
from relay.quarantine.quarantine import StoredQuarantine
from relay.quarantine.record import PART_TYPE, RECORD_TYPE
from tests.support.console import InMemoryHosts, InMemoryTopic
from tests.support.in_memory import InMemoryPublisher, InMemorySource
from tests.support.in_memory_outbox import InMemoryOutbox
from tests.support.operators import Run, relay_command
from tests.support.schedules import Step, Stepped
from tests.unit.relay.commands import ENVIRONMENT


@dataclass(frozen=True, slots=True)
class _Acting:
    """The outbox, the store and the topic of a command."""

    outbox: InMemoryOutbox
    items: Any
    publisher: Any


_ACTING: ContextVar[_Acting] = ContextVar("acting")

_NOW = 1_770_000_000
"""The wall clock of worlds, in seconds since 1970. The ids of records follow from the times of commits."""


@contextmanager
def operated() -> Iterator[None]:
    """Let the commands of worlds run on the worlds' own stores until the block ends, several at a time.

    The wall clock of the relay and of the commands stands still.
    """

    @asynccontextmanager
    async def records(_: object) -> AsyncIterator[QuarantineAdmin]:
        yield QuarantineAdmin(_ACTING.get().items)

    @asynccontextmanager
    async def sender(_: object) -> AsyncIterator[OrderedSender]:
        yield OrderedSender(_ACTING.get().publisher, (0, 0))

    # To read the settings, which are always the same, takes a third of the time of a command.
    streams = read_streams(ENVIRONMENT)
    clock = SimpleNamespace(time=lambda: float(_NOW), monotonic=time.monotonic)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("relay.core.fence", "relay.core.orders", "outbox_relay.operator.cli.quarantine_admin"):
            patch.setattr(f"{module}.time", clock)
        patch.setattr("outbox_relay.operator.cli.options.read_streams", lambda _: streams)
        patch.setattr(
            "outbox_relay.operator.backends.cosmos.backend.CosmosOperatorBackend.open_outbox",
            lambda _: _ACTING.get().outbox,
        )
        patch.setattr("outbox_relay.operator.cli.quarantine.open_records", records)
        patch.setattr("outbox_relay.operator.cli.quarantine.ordered_sender", sender)
        patch.setattr("outbox_relay.operator.cli.explain.open_records", records)
        yield


KEYS = ("k", "K", "k ")
"""Keys that a store must not take for one another."""


class Interrupted:
    """A store at which others go ahead before chosen calls, and which fails from one call on.

    Attributes:
        others: What others do, by the number of calls before.
        fails: The number of calls before the one that fails, and all behind it; None for none.
        is_done: Whether the one that fails is carried out, so that only its answer is lost.
    """

    def __init__(self, items: Items) -> None:
        self._items = items
        self._calls = 0
        self.others: dict[int, Callable[[], Awaitable[object]]] = {}
        self.fails: int | None = None
        self.is_done = False

    def reset(self) -> None:
        """Let every call through, and count from here."""
        self._calls, self.fails = 0, None
        self.others.clear()

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            number, self._calls = self._calls, self._calls + 1
            if (step := self.others.pop(number, None)) is not None:
                await step()
            if self.fails is None or number < self.fails:
                return await getattr(self._items, name)(*arguments, **options)
            if self.is_done and number == self.fails:
                await getattr(self._items, name)(*arguments, **options)
            raise StoreError("the process is killed")

        return call

    async def close(self) -> None:
        """Leave it open for the others."""


class _Telling(InMemoryTopic):
    """A topic that tells the console of each message that it has accepted."""

    def __init__(self, accepted: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self._accepted = accepted

    async def deliveries(self, partition_key: str, ids: Collection[str], /) -> Sequence[Delivery]:
        accepted = [each for each in dict.fromkeys(self._accepted.get(partition_key, ())) if each in ids]
        return [Delivery(each, "all", Arrival.WAITING, accepted_at=1_000_000.0) for each in accepted]


class World:
    """An outbox, a topic, a quarantine, two processes, an operator and the console.

    Attributes:
        console: What the console observes, from the beginning.
        items: The store as whoever acts first sees it.
        topic: The accepted events by key, first copies alone.
    """

    def __init__(self, items: Items, policy: OnPoison) -> None:
        self.source, self.outbox = InMemorySource(), InMemoryOutbox()
        self.outbox.reach(0)
        self.items, self._raw = Interrupted(items), items
        self.policy = policy
        self._accepted: dict[str, list[str]] = {}
        self._first = self.process(self.items)
        self.console = Observer(Sources(self.outbox, _Telling(self._accepted), items, InMemoryHosts()))

    @property
    def topic(self) -> dict[str, list[str]]:
        return {key: list(dict.fromkeys(ids)) for key, ids in self._accepted.items()}

    @property
    def page(self) -> list[StoredDocument]:
        """Return the documents that the checkpoint has not passed."""
        return [each for each in self.outbox.documents if each["_lsn"] > self.source.passed_lsn]

    def process(self, items: Any) -> Relay[Sequence[StoredDocument]]:
        """A process that has just started."""
        publisher, quarantine = InMemoryPublisher(self._accepted), StoredQuarantine(items)
        return Relay(self.source, publisher, quarantine, duplicate_window_s=600, on_poison=self.policy)

    def commit(self, identifier: str, key: str, *, is_poison: bool) -> None:
        """Commit an event; poison has no object as its data."""
        document: dict[str, Any] = {"id": identifier, "partitionKey": key, "type": "domainEvent"}
        document |= {"committedAt": _NOW - 10, "data": 7 if is_poison else {"action": "A"}}
        self.outbox.store(document)

    async def attempt(self, number: int, *, is_new: bool, passes: bool) -> bool:
        """Relay the page, perhaps in a new process; returns whether that succeeded.

        Args:
            number: Of the invocation.
            is_new: Whether the process has just started.
            passes: Whether the checkpoint is stored: otherwise the page comes again.
        """
        if is_new:
            self._first = self.process(self.items)
        return await self._handle(self._first, number, passes=passes)

    async def attempt_elsewhere(self, number: int, *, step: Step | None = None, passes: bool = False) -> None:
        """Relay the page in another process, which is never interrupted; with `step`, it waits for its turns."""
        items = self._raw if step is None else Stepped(self._raw, step)
        await self._handle(self.process(items), number, passes=passes)

    async def _handle(self, relay: Relay[Sequence[StoredDocument]], number: int, *, passes: bool) -> bool:
        page = self.page
        with suppress(PublishError, QuarantineError):
            await relay.handle(page, f"i{number}", 1)
            if passes and page:
                self.source.passed_lsn = max(self.source.passed_lsn, page[-1]["_lsn"])
                self.outbox.reach(self.source.passed_lsn)
            return True
        return False

    async def command(self, *words: str, raw: bool = False) -> dict[str, Any]:
        """Run `python -m relay quarantine …`; `raw` is not interrupted."""
        return (await self._run("quarantine", *words, items=self._raw if raw else self.items)).json

    async def run(self, *words: str, step: Step | None = None) -> Run:
        """Run a command; with `step`, it waits for its turn before each call of the store and of the topic."""
        return await self._run(*words, items=self._raw, step=step)

    async def _run(self, *words: str, items: Any, step: Step | None = None) -> Run:
        publisher: Any = InMemoryPublisher(self._accepted)
        if step is not None:
            items, publisher = Stepped(items, step), Stepped(publisher, step)
        token = _ACTING.set(_Acting(self.outbox, items, publisher))
        try:
            return await relay_command(ENVIRONMENT, *words, "--json")
        finally:
            _ACTING.reset(token)

    async def explain(self, identifier: str, key: str) -> dict[str, Any]:
        """The answer of `python -m relay explain` about an event."""
        (found,) = (await self.run("explain", identifier, "--key", key)).json["streams"]
        return dict(found)

    async def records(self) -> list[dict[str, Any]]:
        """The records as an operator is shown them, whom nobody interrupts."""
        found: list[dict[str, Any]] = (await self.command("list", raw=True))["records"]
        return found

    async def removed(self) -> dict[str, str]:
        """The events whose records operators have removed, by the records' ids."""
        return {item["recordId"]: item["documentId"] for item in await self._raw.of_type(OUTCOME_TYPE)}

    async def clear(self) -> None:
        """Remove everything from the store, for the next history."""
        for kind in (RECORD_TYPE, PART_TYPE, PARKED_TYPE, ORDER_TYPE, OUTCOME_TYPE):
            for item in await self._raw.of_type(kind):
                with suppress(ItemNotFound):
                    await self._raw.delete(item["id"], item["partitionKey"])


class Fate(Enum):
    """The place of an event."""

    WAITING = auto()
    PUBLISHED = auto()
    ASIDE = auto()
    DISCARDED = auto()


@dataclass
class Modelled:
    """An event of the model.

    Attributes:
        is_ordered: Whether an operator's order to set it aside is pending.
        reason: The reason for which it was set aside, if it was.
        is_released: Whether it was published from the quarantine.
    """

    id: str
    key: str
    is_poison: bool
    fate: Fate = Fate.WAITING
    is_ordered: bool = False
    reason: Reason | None = None
    is_released: bool = False


@dataclass
class Model:
    """The fate of each event if one acts after another, by docs/operators.md and docs/guarantees.md."""

    policy: OnPoison
    events: list[Modelled] = field(default_factory=list)
    parked: set[str] = field(default_factory=set)
    topic: dict[str, list[str]] = field(default_factory=dict)

    def event(self, identifier: str) -> Modelled:
        """The event with this id."""
        return next(each for each in self.events if each.id == identifier)

    def of(self, key: str, fate: Fate) -> list[Modelled]:
        """The events of a key, in their order."""
        return [each for each in self.events if (each.key, each.fate) == (key, fate)]

    def attempt(self) -> bool:
        """Relay all that wait; returns whether nothing waits any more."""
        # Every key is relayed, whatever became of those before.
        done = [self._attempt(key) for key in KEYS]
        return all(done)

    def _attempt(self, key: str) -> bool:
        is_blocked = False
        for event in self.of(key, Fate.WAITING):
            if key in self.parked or event.is_ordered or (event.is_poison and self.policy is not OnPoison.BLOCK):
                # What is ordered need not wait for what blocks the key.
                event.fate, event.reason = Fate.ASIDE, self._reason(event)
                event.is_ordered = False
                if self.policy is OnPoison.PARK:
                    self.parked.add(key)
            elif event.is_poison or is_blocked:
                is_blocked = True
            else:
                self._publish(event)
        return not is_blocked

    def _reason(self, event: Modelled) -> Reason:
        if event.is_poison:
            return Reason.DATA_NOT_OBJECT
        return Reason.SET_ASIDE if event.is_ordered else Reason.KEY_PARKED

    def _publish(self, event: Modelled) -> None:
        event.fate = Fate.PUBLISHED
        self.topic.setdefault(event.key, []).append(event.id)

    def release(self, chosen: set[str] | None) -> None:
        """Release the records of these events, or all."""
        for key in KEYS:
            for event in self.of(key, Fate.ASIDE):
                is_chosen = chosen is None or event.id in chosen
                if is_chosen and not event.is_poison:
                    self._publish(event)
                    event.is_released = True
                elif key in self.parked:
                    break
            touched = chosen is None or any(each.id in chosen for each in self.events if each.key == key)
            if touched and not self.of(key, Fate.ASIDE):
                self.parked.discard(key)

    def discard(self, event: Modelled) -> None:
        """Discard the record of an event."""
        event.fate = Fate.DISCARDED
        if not self.of(event.key, Fate.ASIDE):
            self.parked.discard(event.key)
