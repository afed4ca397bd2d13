"""The demo's scenarios: their events add up, and every change is a new value."""

from __future__ import annotations

from typing import Any

import pytest

from local.demo.scenarios import Changes, Collision, Creation, Deletion, Step, scenarios


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
def test_the_events_of_all_scenarios_add_up(contacts: int, events: int) -> None:
    steps = [list(scenario) for scenario in scenarios(contacts, events, seed=1)]

    assert len(steps) == contacts
    assert sum(step.events for scenario in steps for step in scenario) == events


def test_every_value_of_a_contact_is_unique() -> None:
    for scenario in scenarios(40, 1000, seed=2):
        values = [
            (aspect, str(value))
            for step in scenario
            for change in changes_of(step)
            for aspect, value in change.items()
        ]
        assert len(values) == len(set(values))


def test_a_scenario_begins_with_the_creation_and_ends_with_any_deletion() -> None:
    for scenario in scenarios(100, 1000, seed=3):
        steps = list(scenario)
        assert [isinstance(step, Creation) for step in steps] == [True] + [False] * (len(steps) - 1)
        assert not any(isinstance(step, Deletion) for step in steps[:-1])


def test_a_large_plan_has_every_kind_of_step() -> None:
    kinds = {type(step) for scenario in scenarios(50, 500, seed=1) for step in scenario}

    assert kinds == {Creation, Changes, Collision, Deletion}


def test_a_seed_determines_the_plan() -> None:
    def plan(seed: int) -> list[list[Step]]:
        return [list(scenario) for scenario in scenarios(5, 50, seed)]

    assert plan(1) == plan(1) != plan(2)
