"""The rules in one process: what is stored before an event is routed, and how deployments follow one another."""

from __future__ import annotations

import pytest

from relay.core.errors import RulesError
from relay.routes.generations import Generation, Timeline
from relay.routes.rulebook import AHEAD_S, RETURN_S, Rulebook, StoredTimeline, TimelineChanged
from tests.support.in_memory_timelines import InMemoryTimelines


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store() -> InMemoryTimelines:
    return InMemoryTimelines()


async def stored(store: InMemoryTimelines) -> Timeline:
    found = await store.read()
    assert found is not None
    return found.timeline


async def test_the_first_rules_count_for_all_that_was_committed(store: InMemoryTimelines) -> None:
    known = await Rulebook(store, "a", Clock()).timeline(990)

    assert known == await stored(store) == Timeline.of("a").extend(1000 + AHEAD_S)


async def test_nothing_is_read_while_the_rules_are_final(store: InMemoryTimelines) -> None:
    book = Rulebook(store, "a", Clock())
    known = await book.timeline(990)
    store.is_down = True

    assert await book.timeline(known.final_until - 1) is known
    with pytest.raises(RulesError):
        await book.timeline(known.final_until)


async def test_no_event_is_routed_before_its_rules_are_final_in_the_store(store: InMemoryTimelines) -> None:
    # Its clock is far behind the outbox's.
    known = await Rulebook(store, "a", Clock(5)).timeline(9000)

    assert known.at(9000).rules == "a"
    assert (await stored(store)).final_until > 9000


async def test_changed_rules_begin_behind_what_others_may_have_routed(store: InMemoryTimelines) -> None:
    clock = Clock()
    old = Rulebook(store, "a", clock)
    routed = await old.timeline(990)
    clock.now += 5

    new = await Rulebook(store, "b", clock).timeline(1004)

    assert new.last == Generation(2, routed.final_until, "b")
    assert new.continues(routed)
    # The other process learns of it once it may route no further.
    clock.now = routed.final_until + 1
    assert (await old.timeline(routed.final_until)).at(routed.final_until).rules == "b"


async def test_hosts_that_stood_still_leave_their_time_to_the_old_rules(store: InMemoryTimelines) -> None:
    clock = Clock()
    await Rulebook(store, "a", clock).timeline(990)
    clock.now += 3 * 86400

    known = await Rulebook(store, "b", clock).timeline(int(clock.now))

    assert known.at(int(clock.now) - 1).rules == "a"
    assert known.at(int(clock.now)).rules == "b"


async def test_a_process_without_events_adds_its_rules_at_the_start(store: InMemoryTimelines) -> None:
    clock = Clock()
    await Rulebook(store, "a", clock).timeline(0)
    clock.now += 3600

    await Rulebook(store, "b", clock).timeline(0)

    assert (await stored(store)).last == Generation(2, 4600, "b")


async def test_a_rollback_is_a_new_generation(store: InMemoryTimelines) -> None:
    clock = Clock()
    for rules in "aba":
        await Rulebook(store, rules, clock).timeline(int(clock.now))
        clock.now += 2 * AHEAD_S

    assert [each.rules for each in (await stored(store)).generations] == ["a", "b", "a"]


async def test_what_replaced_running_rules_is_replaced_after_a_while(store: InMemoryTimelines) -> None:
    clock = Clock()
    new = Rulebook(store, "b", clock)
    await new.timeline(1000)
    clock.now = 1100
    # A process of the former deployment starts late.
    await Rulebook(store, "a", clock).timeline(1100)

    clock.now += RETURN_S - 1
    known = await new.timeline(int(clock.now))
    assert known.last.rules == "a"
    clock.now += 2 * AHEAD_S
    known = await new.timeline(int(clock.now))

    assert known.last.rules == "b"


async def test_a_process_that_began_earlier_does_not_bring_its_rules_back_when_its_first_event_comes(
    store: InMemoryTimelines,
) -> None:
    clock = Clock()
    await Rulebook(store, "a", clock).timeline(1000)
    idle = Rulebook(store, "a", clock)
    clock.now = 2000
    await Rulebook(store, "b", clock).timeline(2000)
    clock.now = 2010

    known = await idle.timeline(2010)

    assert known.at(2010).rules == "b"
    assert (await stored(store)).last.rules == "b"


async def test_a_rollback_does_not_wait(store: InMemoryTimelines) -> None:
    clock = Clock()
    await Rulebook(store, "a", clock).timeline(1000)
    clock.now += 5
    await Rulebook(store, "b", clock).timeline(1005)
    clock.now += 5

    known = await Rulebook(store, "a", clock).timeline(1010)

    # The other rules have not begun: it is as if they had not been.
    assert [each.rules for each in known.generations] == ["a"]


async def test_a_process_writes_again_what_a_restored_state_lacks(store: InMemoryTimelines) -> None:
    clock = Clock()
    await Rulebook(store, "a", clock).timeline(1000)
    before = await store.read()
    clock.now = 2000
    book = Rulebook(store, "b", clock)
    known = await book.timeline(2000)
    store.restore(before)
    clock.now = known.final_until + 5

    healed = await book.timeline(int(clock.now))

    assert healed.continues(known)
    assert (await stored(store)) == healed


async def test_a_process_writes_again_what_was_lost(store: InMemoryTimelines) -> None:
    clock = Clock()
    await Rulebook(store, "a", clock).timeline(1000)
    clock.now = 2000
    book = Rulebook(store, "b", clock)
    known = await book.timeline(2000)
    store.restore(None)
    clock.now = known.final_until + 5

    assert (await book.timeline(int(clock.now))).continues(known)


async def test_rules_of_a_later_version_are_not_replaced(store: InMemoryTimelines) -> None:
    class Later(InMemoryTimelines):
        async def read(self) -> StoredTimeline | None:
            return StoredTimeline(Timeline.from_item({"format": 2}), "1")

    with pytest.raises(RulesError, match="later version"):
        await Rulebook(Later(), "a", Clock()).timeline(1000)


async def test_a_change_that_is_always_refused_ends(store: InMemoryTimelines) -> None:
    class Contended(InMemoryTimelines):
        async def create(self, timeline: Timeline, /) -> None:
            raise TimelineChanged("others are faster")

    with pytest.raises(RulesError, match="tried again"):
        await Rulebook(Contended(), "a", Clock()).timeline(1000)
