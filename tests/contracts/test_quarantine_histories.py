"""Random histories of the relay and an operator on each store of the quarantine."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config.settings import OnPoison
from relay.core.events import Reason
from tests.fuzz.budget import trying
from tests.support.quarantine_histories import KEYS, Fate, Model, Modelled, World, operated
from tests.support.stores import Store

# A history in memory takes some 30 ms, on a database ten times that.
HISTORIES = int(os.environ.get("FUZZ_EXAMPLES", "2000")) // 40

POLICIES = st.sampled_from(list(OnPoison))
MEMORY, DATABASES = ["in memory"], ["Cosmos DB emulator", "PostgreSQL"]

# What is done, with a number that chooses the key, the event or the record, and the kind of attempt.
Step = tuple[str, int]
ACTIONS = (
    *("commit", "commit", "poison", "attempt", "attempt", "attempt"),
    *("add", "add", "withdraw", "release", "release one", "release one", "discard", "discard"),
)
STEP = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7))
STEPS, FEW_STEPS = st.lists(STEP, min_size=12, max_size=24), st.lists(STEP, min_size=8, max_size=12)


@pytest.fixture(scope="module", autouse=True)
def commands() -> Iterator[None]:
    """Let the commands run on the stores of these tests."""
    with operated():
        yield


def key_of(number: int) -> str:
    """The key that a number chooses, most often the first one."""
    return KEYS[max(number - 5, 0)]


def one_of(found: Sequence[Any], number: int) -> Sequence[Any]:
    """The one of these that a number chooses, if there are any."""
    return found[number % len(found) :][:1] if found else []


# one after another


async def do(world: World, model: Model, step: Step, invocation: int) -> None:
    """Do a step in the world and in the model, if there is anything to do it with."""
    action, number = step
    if action in ("commit", "poison"):
        event = Modelled(f"e{len(model.events)}", key_of(number), action == "poison")
        model.events.append(event)
        world.commit(event.id, event.key, is_poison=event.is_poison)
    elif action == "attempt":
        done = await world.attempt(invocation, is_new=number % 2 == 1, passes=number < 3)
        assert done is model.attempt()
    elif action == "add":
        for event in one_of([each for each in model.events if each.fate is Fate.WAITING], number):
            await world.command("add", event.key, event.id, "--yes")
            event.is_ordered = True
    elif action == "withdraw":
        for order in (await world.command("list"))["orders"][:1]:
            assert (await world.command("discard", order["id"], "--yes"))["withdrawn"] == [order["id"]]
            model.event(order["eventId"]).is_ordered = False
    elif action == "release":
        await world.command("release", "--all")
        model.release(None)
    elif action == "release one":
        for record in one_of(await world.records(), number):
            await world.command("release", record["id"])
            model.release({record["documentId"]})
    else:
        for record in one_of(await world.records(), number):
            await world.command("discard", record["id"], "--yes")
            model.discard(model.event(record["documentId"]))


async def compare(world: World, model: Model) -> None:
    """Compare what the operator is shown, and what the topic has, with the model."""
    listed = await world.command("list")
    for key in KEYS:
        records = [
            (each["documentId"], each["reason"]) for each in listed["records"] if each["partitionKey"] == key
        ]
        assert records == [(each.id, each.reason) for each in model.of(key, Fate.ASIDE)]
        assert world.topic.get(key, []) == model.topic.get(key, [])
    assert {each["partitionKey"] for each in listed["parked"]} == model.parked
    assert {each["eventId"] for each in listed["orders"]} == {each.id for each in model.events if each.is_ordered}


async def compare_each(world: World, model: Model) -> None:
    """Compare what the operator is shown of each event with the model."""
    for event in model.events:
        explained = await world.explain(event.id, event.key)
        assert explained["outcome"] == ("quarantine" if event.is_poison else "publish")
        assert re.fullmatch(said(model, event), explained.get("quarantine", "")), (event, explained)
    for record in await world.records():
        shown = (await world.command("show", record["id"]))["record"]
        assert shown["document"] in world.outbox.documents
        assert {name: shown[name] for name in record} == record


async def compare_console(world: World, model: Model) -> None:
    """Compare what the console shows of each event, and its totals, with the model.

    Of an event that no checkpoint has passed, it may know no more than that it is committed.
    """
    snapshot = await world.console.look()
    timelines = [await world.console.timeline(key, 100, data=False) for key in KEYS]
    recent = {each.id: str(each.stage) for each in snapshot.recent}
    comes_again = {each["id"] for each in world.page}
    for shown in recent, {each.id: str(each.stage) for timeline in timelines for each in timeline.events}:
        assert shown == {
            event.id: "committed"
            if event.id in comes_again and shown.get(event.id) == "committed"
            else stage_of(event)
            for event in model.events
        }
    assert snapshot.flow.published == Counter(recent.values())["published"]
    assert snapshot.flow.quarantined == sum(event.fate is Fate.ASIDE for event in model.events)


def stage_of(event: Modelled) -> str:
    """Return the name of the stage that the console shows."""
    if event.fate is Fate.ASIDE:
        return "parked" if event.reason is Reason.KEY_PARKED else "quarantined"
    return {Fate.WAITING: "committed", Fate.PUBLISHED: "published", Fate.DISCARDED: "discarded"}[event.fate]


def said(model: Model, event: Modelled) -> str:
    """The sentence, as a pattern, that `explain` has of the quarantine."""
    if event.fate is Fate.ASIDE:
        return f"it is in quarantine since .*: {event.reason}"
    if event.fate is Fate.DISCARDED or event.is_released:
        return f"it was {'released' if event.is_released else 'discarded'} by .* at .*"
    if event.is_ordered:
        return "it was ordered at .* that it be set aside at its next attempt"
    return "its key is parked since .*" if event.key in model.parked else ""


async def play(store: Store, policy: OnPoison, steps: Sequence[Step], *, compares: int) -> None:
    """Play a history, and compare it with the model after each group of steps."""
    world, model = World(store.items, policy), Model(policy)
    await world.clear()
    for done, step in enumerate(steps, 1):
        await do(world, model, step, done)
        if done % compares == 0 or done == len(steps):
            await compare(world, model)
            await compare_each(world, model)
            await compare_console(world, model)


@pytest.mark.parametrize("store", MEMORY, indirect=True)
@trying(HISTORIES)
@given(policy=POLICIES, steps=STEPS)
async def test_one_after_another_does_what_the_model_says(
    store: Store, policy: OnPoison, steps: Sequence[Step]
) -> None:
    await play(store, policy, steps, compares=3)


@pytest.mark.parametrize("store", DATABASES, indirect=True)
@trying(HISTORIES // 8)
@given(policy=POLICIES, steps=FEW_STEPS)
async def test_one_after_another_does_on_a_database_what_the_model_says(
    store: Store, policy: OnPoison, steps: Sequence[Step]
) -> None:
    await play(store, policy, steps, compares=6)


# at the same time


@dataclass(frozen=True, slots=True)
class Disturbance:
    """An interruption of a step, at its call of the store of this number: another step, or its end.

    Attributes:
        step: What somebody else does before the call; None if the process is killed.
        is_done: Whether the process is killed behind the call, so that only the answer is lost.
    """

    call: int
    step: Step | None
    is_done: bool


DISTURBANCES = st.none() | st.builds(
    Disturbance, st.integers(0, 6), st.none() | STEP.filter(lambda step: step[0] != "commit"), st.booleans()
)


@dataclass
class Disturbed:
    """A history in which others act, or processes are killed, within a step.

    Attributes:
        events: Whether each event is poison, by its id, in the order of the commits.
        keys: The key of each.
        recorded: The events that were in quarantine, or ordered to be, at any time.
        discarded: The events whose record somebody has discarded, or has perhaps.
        gone: Those of them that were discarded while nobody else did anything, and were not published before.
    """

    world: World
    events: dict[str, bool] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    invocation: int = 0

    @property
    def published(self) -> set[str]:
        return {each for ids in self.world.topic.values() for each in ids}

    async def do(self, step: Step, disturbance: Disturbance | None) -> None:
        """Do a step, and what disturbs it."""
        items = self.world.items
        items.reset()
        if disturbance is not None and disturbance.step is not None:
            other = disturbance.step
            items.others[disturbance.call] = lambda: self._do(other, raw=True)
        elif disturbance is not None:
            items.fails, items.is_done = disturbance.call, disturbance.is_done
        before = self.published
        discarded = await self._do(step, raw=False)
        if disturbance is None:
            self.gone |= discarded - before
        items.reset()
        await self._look()

    async def _look(self) -> None:
        self.recorded |= {each["documentId"] for each in await self.world.records()}

    async def _do(self, step: Step, *, raw: bool) -> set[str]:
        """Do a step; `raw` is done by others. Returns the events whose records were discarded."""
        (action, number), world = step, self.world
        self.invocation += 1
        if action in ("commit", "poison"):
            identifier = f"e{len(self.events)}"
            self.events[identifier], self.keys[identifier] = action == "poison", key_of(number)
            world.commit(identifier, key_of(number), is_poison=action == "poison")
        elif action == "attempt" and raw:
            await world.attempt_elsewhere(self.invocation)
        elif action == "attempt":
            await world.attempt(self.invocation, is_new=number % 2 == 1, passes=number < 3)
        elif action == "add":
            for identifier in one_of([each for each in self.events if each not in self.published], number):
                await world.command("add", self.keys[identifier], identifier, "--yes", raw=raw)
                # An attempt may be killed when it has published what is behind, and the order be withdrawn then.
                self.recorded.add(identifier)
        elif action == "withdraw":
            for order in (await world.command("list", raw=True))["orders"][:1]:
                await world.command("discard", order["id"], "--yes", raw=raw)
        elif action == "release":
            await world.command("release", "--all", raw=raw)
        else:
            for record in one_of(await world.records(), number):
                words = ("release",) if action == "release one" else ("discard", "--yes")
                await world.command(*words, record["id"], raw=raw)
                if words[0] == "discard":
                    self.discarded.add(record["documentId"])
                    return {record["documentId"]}
        return set()

    async def settle(self) -> None:
        """Run undisturbed rounds until everything has come to its end, up to a limit."""
        world = self.world
        world.items.reset()
        for _ in range(len(self.events) + 2):
            if await world.attempt(self.invocation, is_new=True, passes=True):
                break
            for document in world.page:
                if self.events[document["id"]]:
                    await world.command("add", document["partitionKey"], document["id"], "--yes")
        assert world.page == []
        await self._look()
        for _ in range(len(self.events) + 2):
            await world.command("release", "--all")
            if not (left := await world.records()):
                break
            # A key that is parked goes on behind its first record.
            await world.command("discard", left[0]["id"], "--yes")
            self.discarded.add(left[0]["documentId"])
            assert self.events[left[0]["documentId"]]

    async def judge(self) -> None:
        """Nothing is lost, published though it must not be, out of order, or left behind."""
        listed = await self.world.command("list")
        assert (listed["total"], listed["parked"]) == (0, [])
        poison = {each for each, is_poison in self.events.items() if is_poison}
        assert self.published | self.discarded == set(self.events)
        assert self.published & (poison | self.gone) == set()
        in_order = list(self.events)
        for ids in self.world.topic.values():
            # Only a parked key keeps its order when something is set aside and released.
            ordered = [each for each in ids if self.world.policy is OnPoison.PARK or each not in self.recorded]
            assert ordered == sorted(ordered, key=in_order.index)


async def disturb(store: Store, policy: OnPoison, steps: Sequence[tuple[Step, Disturbance | None]]) -> None:
    history = Disturbed(World(store.items, policy))
    await history.world.clear()
    for step, disturbance in steps:
        await history.do(step, disturbance)
    await history.settle()
    await history.judge()


DISTURBED = st.lists(st.tuples(STEP, DISTURBANCES), min_size=8, max_size=20)
LITTLE_DISTURBED = st.lists(st.tuples(STEP, DISTURBANCES), min_size=8, max_size=10)


@pytest.mark.parametrize("store", MEMORY, indirect=True)
@trying(HISTORIES)
@given(policy=POLICIES, steps=DISTURBED)
async def test_whatever_happens_at_the_same_time_nothing_is_lost_or_stuck(
    store: Store, policy: OnPoison, steps: Sequence[tuple[Step, Disturbance | None]]
) -> None:
    await disturb(store, policy, steps)


@pytest.mark.slow
@pytest.mark.parametrize("store", DATABASES, indirect=True)
@trying(HISTORIES // 4)
@given(policy=POLICIES, steps=LITTLE_DISTURBED)
async def test_whatever_happens_at_the_same_time_nothing_is_lost_or_stuck_on_a_database(
    store: Store, policy: OnPoison, steps: Sequence[tuple[Step, Disturbance | None]]
) -> None:
    await disturb(store, policy, steps)
