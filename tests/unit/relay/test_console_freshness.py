"""No figure is shown as current that was known too long ago, nor as 0 if it was never known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox_relay.operator.console.freshness import FIGURES, STALE_AFTER_S, Part
from outbox_relay.operator.console.model import Flow, Known, Snapshot, Stage, Subscription
from outbox_relay.operator.console.observer import Observer
from outbox_relay.operator.console.ports import Sources
from outbox_relay.operator.console.status import stale_since
from outbox_relay.operator.console.stream import encoded
from relay.backends.outbox import Committed, Position
from relay.core.errors import StoreError
from tests.support.console import InMemoryTopic
from tests.support.in_memory_items import InMemoryItems
from tests.support.in_memory_outbox import InMemoryOutbox
from tests.support.watchdog import WATCHDOG_S

NOW = 1_000_010.0
NOTHING = asdict(Flow(NOW))
PARTITIONS = ("0", "1", "2")


@dataclass
class SlowOutbox(InMemoryOutbox):
    """An outbox whose positions may take their time."""

    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def positions(self) -> Sequence[Position]:
        await self.answered.wait()
        return await super().positions()


class World:
    """A relay that the steps of a test move, an observer of it, and what was true at each time."""

    def __init__(self) -> None:
        self.now = NOW
        self.outbox, self.items = SlowOutbox(), InMemoryItems()
        self.topic = InMemoryTopic([Subscription("all", 0, 0)])
        self.outbox.keys = {name: name for name in PARTITIONS}
        self.outbox.positions_at = dict.fromkeys(PARTITIONS)
        self.outbox.answered.set()
        self.observer = Observer(Sources(self.outbox, self.topic, self.items), clock=lambda: self.now)
        self.truths: list[tuple[float, dict[str, Any]]] = []
        self.looking: asyncio.Task[bool] | None = None

    def note(self) -> None:
        """Remember what is true now."""
        committed = self.outbox.committed
        waiting = [event for event in committed if not self._is_passed(event)]
        ages = [self.now - event.committed_at for event in waiting]
        self.truths.append(
            (
                self.now,
                {
                    "committed": len(committed),
                    "published": len(committed) - len(waiting),
                    "waiting": len(waiting),
                    "lag_s": max(ages, default=0.0),
                    "quarantined": len(self.items.stored),
                    "subscriptions": tuple(self.topic.counts),
                    "recent": tuple(
                        event.id for event in sorted(committed, key=lambda event: -event.committed_at)
                    )[:50],
                },
            )
        )

    def _is_passed(self, event: Committed) -> bool:
        at = self.outbox.positions_at[event.partition]
        return at is not None and event.place <= at

    async def look(self) -> None:
        """Look at the flow until it is done, or waits for positions that do not come."""
        if self.looking is None:
            self.looking = asyncio.create_task(self.observer.look_at_flow())
        for _ in range(40):
            await asyncio.sleep(0)
            if self.looking.done():
                await self.looking
                self.looking = None
                return

    def check(self) -> None:
        """The properties, of what anybody may be shown now."""
        snapshot = self.observer.latest
        assert snapshot.at == self.now
        assert set(snapshot.known) == set(FIGURES)
        for figure, known in snapshot.known.items():
            if known.at is None:
                assert known.stale
                assert value_of(snapshot, figure) in (None, ()), f"{figure} was never known"
            elif not known.stale:
                assert self.now - known.at <= STALE_AFTER_S[FIGURES[figure]], f"{figure} is old"
                self._is_true_since(snapshot, figure, known.at)

    def _is_true_since(self, snapshot: Snapshot, figure: str, at: float) -> None:
        truths = [truth for time, truth in self.truths if time >= at or truth is self._before(at)]
        if figure not in truths[0]:
            return
        shown, true = value_of(snapshot, figure), [truth[figure] for truth in truths]
        if figure == "recent":
            shown = tuple(each.id for each in shown)
        if figure == "lag_s":  # the page writes tenths or whole seconds
            assert min(abs(shown - each) for each in true) < 1, f"{figure} was never {shown}"
        elif figure == "published":  # a relay passes one event after another, a step all of them
            assert min(true) <= shown <= max(true), f"{figure} was never {shown}"
        else:
            assert shown in true, f"{figure} was never {shown}"

    def _before(self, at: float) -> dict[str, Any] | None:
        return next((truth for time, truth in reversed(self.truths) if time <= at), None)


def value_of(snapshot: Snapshot, figure: str) -> Any:
    return getattr(snapshot.flow, figure) if figure in NOTHING else getattr(snapshot, figure)


def commit(world: World, name: str, number: int) -> None:
    for _ in range(number):
        total = len(world.outbox.committed)
        world.outbox.commit(f"event-{total}", name, committed_at=world.now + total / 1e6 + 1e-7)


def advance(world: World, seconds: int) -> None:
    world.now += seconds


def stall(world: World, answers: bool) -> None:
    world.outbox.answered.set() if answers else world.outbox.answered.clear()


def fail(world: World, what: str) -> None:
    world.outbox.fails = "the account does not answer" if what == "outbox" else None
    world.topic.fails = "the namespace does not answer" if what == "topic" else None
    world.items.answers = [StoreError("no route to the store")] * 100 if what == "items" else []


def pass_all(world: World) -> None:
    world.outbox.pass_all()


async def look(world: World) -> None:
    await world.look()


async def look_at_counts(world: World) -> None:
    await world.observer.look_at_counts()


STEPS: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just(commit), st.sampled_from(PARTITIONS), st.integers(1, 30)),
    st.tuples(st.just(pass_all)),
    st.tuples(st.just(advance), st.sampled_from([1, 4, 9, 11, 3600])),
    st.tuples(st.just(fail), st.sampled_from(["outbox", "topic", "items", "nothing"])),
    st.tuples(st.just(stall), st.booleans()),
    st.tuples(st.just(look)),
    st.tuples(st.just(look)),
    st.tuples(st.just(look_at_counts)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=30))
def test_what_is_shown_as_current_was_true_at_most_so_long_ago(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        world = World()
        world.note()
        for step, *arguments in steps:
            done = step(world, *arguments)
            world.note()
            world.check()
            if done is not None:
                await done
                world.note()
                world.check()
        if world.looking is not None:
            world.looking.cancel()

    asyncio.run(run())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    commit(made, "0", 3)
    made.outbox.pass_all()
    await made.observer.look()
    yield made
    if made.looking is not None:
        made.looking.cancel()


async def test_with_the_source_down_nothing_is_said_to_be_current(world: World) -> None:
    assert (world.observer.latest.flow.waiting, world.observer.latest.known_of("waiting").stale) == (0, False)
    fail(world, "outbox")
    advance(world, 1)

    await world.observer.look()
    advance(world, 1)
    snapshot = world.observer.latest

    known = {figure: snapshot.known_of(figure) for figure in FIGURES}
    assert {figure for figure, each in known.items() if each.stale} == {
        figure for figure, part in FIGURES.items() if part in (Part.OUTBOX, Part.RELAY, Part.RECENT)
    }
    assert (known["waiting"].at, known["quarantined"].at) == (NOW, NOW + 1)
    assert snapshot.number > 2


async def test_a_look_that_is_under_way_changes_no_figure(world: World) -> None:
    """Events of a pause are read before it is known that they were passed during it."""
    advance(world, 3600)
    commit(world, "1", 20)
    advance(world, 20)
    world.outbox.pass_all()
    stall(world, answers=False)
    await world.look()
    await world.observer.look_at_counts()

    early = world.observer.latest
    assert (early.flow.waiting, early.flow.lag_s, early.known_of("waiting").stale) == (0, 0.0, True)
    assert early.known_of("waiting").at == NOW

    stall(world, answers=True)
    await world.look()
    flow = world.observer.latest.flow
    assert (flow.committed, flow.waiting, flow.lag_s) == (23, 0, 0.0)
    assert not world.observer.latest.known_of("waiting").stale


async def test_two_looks_at_once_show_no_half_of_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = world.outbox.positions

    async def late() -> Sequence[Position]:
        found = await positions()
        for _ in range(5):
            await asyncio.sleep(0)
        return found

    monkeypatch.setattr(world.outbox, "positions", late)
    first = asyncio.create_task(world.observer.look_at_flow())
    await asyncio.sleep(0)
    commit(world, "0", 5)
    pass_all(world)
    second = asyncio.create_task(world.observer.look_at_flow())
    shown = []
    for look_done in (first, second):
        await look_done
        shown.append((world.observer.latest.flow.committed, world.observer.latest.flow.waiting))

    assert shown[-1] == (8, 0)
    assert {waiting for _, waiting in shown} == {0}


async def test_what_a_reading_that_hangs_does_not_bring_grows_stale(world: World) -> None:
    stall(world, answers=False)
    await world.look()
    advance(world, 10)
    assert not world.observer.latest.known_of("lag_s").stale

    advance(world, 1)

    before = world.observer.latest
    assert before.known_of("lag_s") == before.known_of("partitions")
    assert (before.known_of("lag_s").at, before.known_of("lag_s").stale) == (NOW, True)


async def test_a_service_that_does_not_answer_makes_nothing_else_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_COUNTS_BUSY_S", "_COUNTS_IDLE_S", "_CLOCK_S", "_IDLE_S"):
        monkeypatch.setattr(f"outbox_relay.operator.console.observer.{name}", 0.0)
    world = World()

    async def count(chosen: object) -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(world.items, "count", count)
    async with world.observer as observer, asyncio.timeout(WATCHDOG_S):
        snapshot = await observer.changed(0)
        while snapshot.known_of("subscriptions").stale:
            snapshot = await observer.changed(snapshot.number)
        advance(world, 20)
        while (await observer.current(0.001)).known_of("subscriptions").at != world.now:
            pass
        known = observer.latest.known

    assert known["quarantined"].stale
    assert not known["subscriptions"].stale
    assert not known["obstacles"].stale


async def test_the_first_answer_after_an_idle_time_is_known_or_says_that_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.observer._LINGER_S", 0.0)
    world = World()
    async with world.observer as observer:
        assert (await observer.current(10)).flow.waiting == 0
        async with asyncio.timeout(WATCHDOG_S):
            while observer._watched.is_set():
                await asyncio.sleep(0)
        commit(world, "0", 20)
        world.outbox.pass_all()
        advance(world, 20)

        answer = await observer.current(10)
        assert (answer.flow.committed, answer.flow.waiting, answer.known_of("waiting").at) == (20, 0, world.now)

        advance(world, 20)
        stall(world, answers=False)
        late = await observer.current(0.01)
        assert late.known_of("waiting").stale


async def test_what_cannot_be_read_does_not_hold_up_the_answer() -> None:
    world = World()
    fail(world, "topic")
    async with world.observer as observer, asyncio.timeout(WATCHDOG_S):
        for _ in range(2):
            answer = await observer.current(60)

    assert answer.flow.waiting == 0
    assert not answer.known_of("waiting").stale
    assert answer.known_of("subscriptions") == Known()
    assert stale_since(answer) == "incomplete"


async def test_events_that_are_read_for_long_are_not_said_to_be_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.progress._PAGE", 5)
    monkeypatch.setattr("outbox_relay.operator.console.progress._PAGES", 2)
    commit(world, "2", 25)

    snapshot = await world.observer.look()
    assert (snapshot.flow.committed, snapshot.known_of("committed").stale) == (13, False)
    assert (snapshot.flow.waiting, snapshot.known_of("waiting").stale) == (0, True)

    for _ in range(2):
        snapshot = await world.observer.look()
    assert (snapshot.flow.committed, snapshot.flow.waiting) == (28, 25)
    assert not snapshot.known_of("waiting").stale


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 40)), max_size=160),
    st.integers(1, 60),
)
def test_the_latest_fifty_are_the_newest_in_whatever_order_partitions_are_read(
    events: list[tuple[str, int]], page: int
) -> None:
    """Against a sorted list: each partition is read to its end before the next one, in pages."""

    async def run() -> None:
        world = World()
        for number, (name, second) in enumerate(sorted(events, key=lambda event: event[1])):
            world.outbox.commit(f"event-{number}", name, committed_at=NOW + second)
        by_partition = [e for name in PARTITIONS for e in world.outbox.committed if e.partition == name]
        world.outbox.committed = by_partition
        world.outbox.pass_all()
        snapshot = await world.observer.look()

        newest = sorted(enumerate(by_partition), key=lambda pair: (-pair[1].committed_at, -pair[0]))
        assert [each.id for each in snapshot.recent] == [event.id for _, event in newest[:50]]
        assert [each.id for each in snapshot.earlier] == [event.id for _, event in newest[50:]]
        assert {each.stage for each in snapshot.recent} <= {Stage.PUBLISHED}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outbox_relay.operator.console.progress._PAGE", page)
        patch.setattr("outbox_relay.operator.console.progress._PAGES", 1000)
        asyncio.run(run())


def test_the_state_as_json_has_the_time_of_each_figure_and_null_for_what_is_unknown() -> None:
    state = json.loads(encoded(World().observer.latest))

    assert set(state["known"]) == set(FIGURES)
    assert state["known"]["waiting"] == {"at": None, "stale": True}
    assert {name: state["flow"][name] for name in state["flow"] if name != "since"} == dict.fromkeys(
        set(NOTHING) - {"since"}
    )
    assert set(FIGURES) == (set(NOTHING) - {"since"}) | {
        *("partitions", "subscriptions", "quarantine", "dead_letters", "recent", "obstacles", "removals"),
    }
