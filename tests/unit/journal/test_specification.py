"""The validator: the steps that it refuses, beyond what TLC's behaviours show, and those of setting aside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.journal.building import KEY, Building, event
from verification.journal import entries
from verification.journal.checker import Policy
from verification.journal.specification import validate

WINDOW_S = 10.0


class Leased(Building):
    """A journal with a lease, that of the shard `s`; a second passes between two entries."""

    def committed_at(self, *positions: tuple[int, ...], key: str = KEY, place: str = "s") -> Leased:
        for number, position in enumerate(positions, len(self.entries) + 1):
            self.add(entries.Committed, **event(number, key), position=position, digest=f"d{number}", place=place)
        return self

    def claimed(self, owner: str, epoch: int | None = None, **of: Any) -> Leased:
        self.add(entries.Claimed, **{"lease": "s", **of}, owner=owner, epoch=epoch)
        return self

    def lost(self, owner: str, epoch: int | None = None) -> Leased:
        self.add(entries.Lost, lease="s", owner=owner, epoch=epoch)
        return self

    def moved(self, owner: str, *position: int, epoch: int | None = None, **of: Any) -> Leased:
        self.add(entries.Checkpointed, **{"lease": "s", **of}, owner=owner, epoch=epoch, position=position)
        return self

    def read(self, owner: str, after: tuple[int, ...], upto: tuple[int, ...]) -> Leased:
        self.add(entries.Read, lease="s", owner=owner, after=after, upto=upto)
        return self


def refused(journal: Building, policy: Policy = Policy.SKIP) -> dict[str, int]:
    steps = validate(journal.entries, policy, window_s=WINDOW_S)
    assert len(steps.findings) == steps.counts.total()
    return {str(step): times for step, times in steps.counts.items()}


def leased(*positions: tuple[int, ...]) -> Leased:
    return Leased().committed_at(*positions).claimed("p", 1)


def test_a_position_passes_what_was_accepted_or_set_aside() -> None:
    journal = leased((1,), (2,), (3,))
    journal.accepted(1).set_aside(2)

    assert refused(journal.moved("p", 2, epoch=1)) == {}
    assert refused(journal.moved("p", 3, epoch=1)) == {"passed": 1}


def test_what_is_committed_behind_a_position_was_passed() -> None:
    journal = leased((1,))
    journal.accepted(1)

    journal.moved("p", 5, epoch=1).committed_at((4,))

    assert refused(journal) == {"passed": 1}


def test_a_lease_passes_the_keys_that_it_covers() -> None:
    journal = Leased().committed_at((1, 0), key="a", place="05").committed_at((1, 0), key="b", place="7F")
    journal.claimed("p", lease="0", covers=("", "7F")).accepted(1, key="a")

    assert refused(journal.moved("p", 1, lease="0", covers=("", "7F"))) == {}
    assert refused(journal.claimed("p", lease="1", covers=("7F", "FF"))) == {}
    assert refused(journal.moved("p", 1, lease="1", covers=("7F", "FF"))) == {"passed": 1}


def test_a_position_within_a_commit_passes_its_beginning() -> None:
    journal = leased((1, 0), (1, 1))
    journal.accepted(1)

    assert refused(journal.moved("p", 1, 0, epoch=1)) == {}
    assert refused(journal.moved("p", 1, epoch=1)) == {"passed": 1}


def test_an_event_is_not_accepted_ahead_of_one_that_nobody_settled() -> None:
    assert refused(leased((1,), (2,)).accepted(2)) == {"ahead": 1}
    assert refused(leased((1,), (2,)).parked(1).accepted(2)) == {}
    assert refused(leased((1,), (2,)).ordered(1).accepted(2)) == {}
    assert refused(Building().committed(1, sound=False).committed(2).accepted(2)) == {}


@pytest.mark.parametrize(("policy", "steps"), [(Policy.SKIP, {}), (Policy.PARK, {"ahead": 1})])
def test_a_release_keeps_order_with_park_only(policy: Policy, steps: dict[str, int]) -> None:
    journal = leased((1,), (2,), (3,)).parked(2)

    assert refused(journal.accepted(2), policy) == steps


def test_within_the_window_repeats_are_dropped_and_beyond_it_they_are_not() -> None:
    journal = leased((1,)).accepted(1).duplicate(1)
    assert refused(journal) == {}

    assert refused(journal.accepted(1)) == {"again": 1, "window": 1}
    for _ in range(int(WINDOW_S)):
        journal.ordered(1)
    assert refused(journal.duplicate(1)) == {"again": 1, "window": 2}
    assert refused(journal.accepted(1)) == {"again": 2, "window": 2}


def test_the_time_of_the_topic_may_be_off() -> None:
    journal = leased((1,)).accepted(1)
    for _ in range(int(WINDOW_S)):
        journal.ordered(1)

    steps = validate(journal.duplicate(1).entries, window_s=WINDOW_S, slack_s=1.5)

    assert steps.counts.total() == 0


@pytest.mark.parametrize(
    ("journal", "steps"),
    [
        (leased((1,)).lost("p", 1).claimed("q", 2).moved("p", 1, epoch=1), {"owner"}),
        (leased((1,)).moved("p", 1, epoch=2), {"owner"}),
        (leased((1,)).moved("", 1, epoch=1), {"owner"}),
        (leased((1,)).claimed("q", 2), {"claim"}),
        (leased((1,)).lost("q", 1), {"claim"}),
        (leased((1,)).lost("p", 1).claimed("q", 1), {"claim"}),
    ],
    ids=["another owner", "another epoch", "nobody", "taken", "lost by another", "epoch stays"],
)
def test_a_lease_is_its_owners_and_its_epochs_rise(journal: Leased, steps: set[str]) -> None:
    assert refused(journal).keys() - {"passed"} == steps


def test_a_lease_that_a_split_made_has_a_position_before_it_has_an_owner() -> None:
    journal = Leased().moved("", 4).claimed("p").moved("p", 5)

    assert refused(journal) == {}
    assert refused(Leased().claimed("p").moved("", 4)) == {"owner": 1}


@pytest.mark.parametrize("position", [4, 5])
def test_a_position_goes_on(position: int) -> None:
    journal = leased().moved("p", 5, epoch=1)

    assert refused(journal.moved("p", position, epoch=1)) == {"back": 1}


def test_positions_are_in_the_order_of_a_key_and_given_once() -> None:
    assert refused(Leased().committed_at((2,), (1,))) == {"place": 1}
    assert refused(Leased().committed_at((1,), (1,))) == {"place": 1}
    assert refused(Leased().committed_at((1, 1), (1, 0))) == {}
    assert refused(Leased().committed_at((1,)).committed_at((1,), key="b", place="t")) == {}


@pytest.mark.parametrize(
    ("journal", "steps"),
    [
        (leased((1, 0), (1, 1), (2, 0)).read("p", (0,), (1,)), {"page": 1}),
        (Leased().committed_at((1, 0), (1, 1), (2, 0)).claimed("p").read("p", (0,), (1,)), {}),
        (Leased().committed_at((1, 0), (1, 1), (2, 0)).claimed("p").read("p", (0,), (1, 1)), {}),
        (Leased().committed_at((1, 0), (1, 1), (2, 0)).claimed("p").read("p", (0,), (1, 0)), {"page": 1}),
        (Leased().moved("", 1).claimed("p").read("p", (0,), (2,)), {"page": 1}),
        (Leased().moved("", 1).claimed("p").read("p", (1,), (2,)), {}),
        (Leased().claimed("q").read("p", (0,), (1,)), {"page": 1}),
    ],
    ids=["another epoch", "a commit", "its last", "within", "elsewhere", "where it is", "another owner"],
)
def test_a_page_is_its_owners_and_ends_with_a_commit(journal: Leased, steps: dict[str, int]) -> None:
    assert refused(journal) == steps


def test_time_does_not_go_back() -> None:
    journal = Building().committed(1).accepted(1)
    journal.entries.reverse()

    assert refused(journal) == {"time": 1}
