"""The demo's plan: its events add up, and each change is one."""

from __future__ import annotations

from typing import Any

import pytest

from local.demo.lives import Changes, Collision, Creation, Deletion, Step, lives


def changes_of(step: Step) -> list[dict[str, Any]]:
    match step:
        case Creation():
            return [{name: value for name, value in step.contact.items() if name != "id"}]
        case Changes():
            return [step.values]
        case Collision():
            return [step.one.values, step.other.values]
        case _:
            return []


@pytest.mark.parametrize(("contacts", "events"), [(1, 1), (3, 7), (40, 1000), (10, 11)])
def test_the_events_of_all_lives_add_up(contacts: int, events: int) -> None:
    steps = [list(life) for life in lives(contacts, events, seed=1)]

    assert len(steps) == contacts
    assert sum(step.events for life in steps for step in life) == events


def test_no_value_of_a_contact_comes_twice() -> None:
    for life in lives(40, 1000, seed=2):
        told = [
            (aspect, str(value))
            for step in life
            for change in changes_of(step)
            for aspect, value in change.items()
        ]
        assert len(told) == len(set(told))


def test_a_life_begins_with_the_creation_and_nothing_follows_a_deletion() -> None:
    for life in lives(100, 1000, seed=3):
        steps = list(life)
        assert [isinstance(step, Creation) for step in steps] == [True] + [False] * (len(steps) - 1)
        assert not any(isinstance(step, Deletion) for step in steps[:-1])


def test_everything_happens_in_a_plan_of_some_size() -> None:
    kinds = {type(step) for life in lives(50, 500, seed=1) for step in life}

    assert kinds == {Creation, Changes, Collision, Deletion}


def test_a_plan_is_the_same_for_the_same_seed_alone() -> None:
    def plan(seed: int) -> list[list[Step]]:
        return [list(life) for life in lives(5, 50, seed)]

    assert plan(1) == plan(1) != plan(2)
