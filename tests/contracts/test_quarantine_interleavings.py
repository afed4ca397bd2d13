"""Commands, or commands and a late process, at one key: every interleaving of their calls, up to a bound.

A call of the store or of the topic is one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, combinations_with_replacement

import pytest

from relay.config.settings import OnPoison
from tests.support.operators import Run
from tests.support.quarantine_histories import World, operated
from tests.support.schedules import Actor, Schedule, Step, schedules
from tests.support.stores import Store

MEMORY, DATABASES = ["in memory"], ["Cosmos DB emulator", "PostgreSQL"]

KEY = "k"


@pytest.fixture(scope="module", autouse=True)
def commands() -> Iterator[None]:
    """Let the commands run on the stores of these tests."""
    with operated():
        yield


@dataclass(frozen=True)
class Beginning:
    """A state of the key in which the actors begin.

    Attributes:
        events: Whether each event is poison, in the order of the commits.
        ordered: The events that are ordered to be set aside before the attempt.
        pending: Those that are ordered behind it.
        is_attempted: Whether the page was attempted.
        passes: Whether the checkpoint has passed it then.
    """

    policy: OnPoison
    events: tuple[bool, ...]
    ordered: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()
    is_attempted: bool = True
    passes: bool = False


SOUND, POISON = False, True
BEGINNINGS = {
    "two are set aside": Beginning(OnPoison.SKIP, (SOUND, SOUND, SOUND), ordered=(0, 1)),
    "two are set aside and passed": Beginning(OnPoison.SKIP, (SOUND, SOUND, SOUND), ordered=(0, 1), passes=True),
    "the key is parked": Beginning(OnPoison.PARK, (SOUND, SOUND, SOUND), ordered=(0,)),
    "the key is parked and passed": Beginning(OnPoison.PARK, (SOUND, SOUND, SOUND), ordered=(0,), passes=True),
    "one is parked behind poison": Beginning(OnPoison.PARK, (POISON, SOUND)),
    "poison blocks the key": Beginning(OnPoison.BLOCK, (SOUND, POISON, SOUND), ordered=(0,), pending=(1,)),
    "nothing is attempted yet": Beginning(OnPoison.PARK, (SOUND, SOUND), pending=(0,), is_attempted=False),
}

QUICK = ("the key is parked", "poison blocks the key", "nothing is attempted yet")
"""The other ones are begun in by slow tests."""
OFTEN = (*QUICK, "two are set aside")
"""One for each policy: three who act, or two who are interrupted twice, take minutes in each."""


ACTS = ("release all", "release 0", "release 1", "discard 0", "discard 1", "add 1", "withdraw", "attempt")


@dataclass
class Key:
    """A key in quarantine, with those who act on it."""

    world: World
    beginning: Beginning
    ids: list[str] = field(default_factory=list)
    records: dict[int, str] = field(default_factory=dict)
    order: str | None = None

    async def begin(self) -> None:
        world, beginning = self.world, self.beginning
        await world.clear()
        for number, is_poison in enumerate(beginning.events):
            self.ids.append(f"e{number}")
            world.commit(self.ids[-1], KEY, is_poison=is_poison)
        await self._order(beginning.ordered)
        if beginning.is_attempted:
            await world.attempt(1, is_new=True, passes=beginning.passes)
        await self._order(beginning.pending)
        listed = await world.command("list")
        self.records = {self.ids.index(each["documentId"]): each["id"] for each in listed["records"]}
        self.order = next((each["id"] for each in listed["orders"]), None)

    async def _order(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            await self.world.command("add", KEY, self.ids[number], "--yes")

    def actor(self, act: str, invocation: int) -> Actor | None:
        """Return an action of somebody; None if there is nothing to do it with."""
        verb, _, which = act.partition(" ")
        if verb == "attempt":
            return partial(self._attempt, invocation)
        if verb == "add":
            return partial(self._command, "add", KEY, self.ids[int(which)], "--yes")
        if verb == "withdraw":
            return None if self.order is None else partial(self._command, "discard", self.order, "--yes")
        if which == "all":
            return partial(self._command, "release", "--all")
        record = self.records.get(int(which))
        words = ["--yes"] if verb == "discard" else []
        return None if record is None else partial(self._command, verb, record, *words)

    async def _command(self, *words_and_step: str | Step) -> Run:
        *words, step = words_and_step
        return await self.world.run("quarantine", *words, step=step)  # type: ignore[arg-type]

    async def _attempt(self, invocation: int, step: Step) -> None:
        await self.world.attempt_elsewhere(invocation, step=step, passes=True)

    @property
    def topic(self) -> list[str]:
        return self.world.topic.get(KEY, [])

    async def judge(self, runs: Sequence[object]) -> None:
        """Each command has said what it did; nothing is lost, stuck, out of order or published once discarded."""
        said = [run.json for run in runs if isinstance(run, Run) and run.out]
        events = {record: self.ids[number] for number, record in self.records.items()}
        events |= await self.world.removed()
        released = {events[each] for one in said for each in one.get("released", [])}
        discarded = [events[each] for one in said for each in one.get("discarded", [])]
        before = set(self.topic)
        assert released <= before
        assert len(discarded) == len(set(discarded)), "a record was discarded twice"
        for each in discarded:
            explained = (await self.world.explain(each, KEY))["quarantine"]
            assert re.match(f"it was {'released' if each in before else 'discarded'} by", explained)
        gone = set(discarded) - before
        gone |= await self._settle()
        assert set(self.topic) | gone == set(self.ids)
        assert set(self.topic) & gone == set()
        is_parked = self.beginning.policy is OnPoison.PARK
        # What one operator releases while another one discards it may come late.
        late = set(discarded) & before
        late |= set() if is_parked else {self.ids[each] for each in self._recorded}
        ordered = [each for each in self.topic if each not in late]
        assert ordered == sorted(ordered)

    @property
    def _recorded(self) -> set[int]:
        """The events that were set aside, or are ordered to be by one of the acts."""
        return {*self.records, *self.beginning.pending, 1}

    async def _settle(self) -> set[str]:
        """Go on, undisturbed, until everything has come to its end; returns the events that are discarded."""
        world, gone = self.world, set()
        for _ in self.ids:
            if await world.attempt(9, is_new=True, passes=True):
                break
            for document in world.page:
                if self.beginning.events[self.ids.index(document["id"])]:
                    await world.command("add", KEY, document["id"], "--yes")
        assert world.page == []
        for _ in [*self.ids, None]:
            await world.command("release", "--all")
            if not (left := await world.records()):
                break
            (discarded,) = (await world.command("discard", left[0]["id"], "--yes"))["discarded"]
            assert discarded == left[0]["id"]
            gone.add(left[0]["documentId"])
        listed = await world.command("list")
        assert (listed["total"], listed["parked"]) == (0, [])
        return gone


async def explore(store: Store, beginning: Beginning, acts: Sequence[str], preemptions: int) -> int:
    """Run every schedule of what two do; returns their number."""
    tried = 0
    async for schedule in schedules(preemptions):
        key = Key(World(store.items, beginning.policy), beginning)
        await key.begin()
        actors = [key.actor(act, 2 + number) for number, act in enumerate(acts)]
        chosen = [actor for actor in actors if actor is not None]
        if len(chosen) < len(acts):
            return 0
        tried += 1
        await judged(key, schedule, chosen, acts)
    return tried


async def judged(key: Key, schedule: Schedule, actors: Sequence[Actor], acts: Sequence[str]) -> None:
    try:
        await key.judge(await schedule.run(actors))
    except BaseException as error:
        error.add_note(f"{acts} in the order {[number for _, number in schedule.turns]}")
        raise


@pytest.mark.parametrize("store", MEMORY, indirect=True)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BEGINNINGS]
)
async def test_two_at_one_key_lose_and_repeat_nothing_and_say_what_they_did(store: Store, name: str) -> None:
    tried = [await explore(store, BEGINNINGS[name], acts, 1) for acts in combinations_with_replacement(ACTS, 2)]

    assert sum(tried) > 60


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("store", MEMORY, indirect=True)
@pytest.mark.parametrize("name", OFTEN)
async def test_two_who_are_interrupted_twice_lose_and_repeat_nothing(store: Store, name: str) -> None:
    tried = [await explore(store, BEGINNINGS[name], acts, 2) for acts in combinations_with_replacement(ACTS, 2)]

    assert sum(tried) > 250


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("store", MEMORY, indirect=True)
@pytest.mark.parametrize("name", OFTEN)
async def test_three_at_one_key_lose_and_repeat_nothing(store: Store, name: str) -> None:
    tried = [await explore(store, BEGINNINGS[name], acts, 1) for acts in combinations(ACTS, 3)]

    assert sum(tried) > 200


@pytest.mark.slow
@pytest.mark.parametrize("store", DATABASES, indirect=True)
@pytest.mark.parametrize(
    "acts", [("release all", "discard 0"), ("discard 0", "discard 0"), ("discard 1", "attempt")]
)
async def test_two_at_one_key_of_a_database_lose_and_repeat_nothing(store: Store, acts: Sequence[str]) -> None:
    assert await explore(store, BEGINNINGS["the key is parked"], acts, 1) > 6
