"""Generations of the rules as values: which counts for a commit time, and what may still be changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import RulesError
from relay.routes.generations import Generation, Timeline, rules_text

TWO = Timeline((Generation(1, None, "one"), Generation(4, 100, "two")), 160)


def test_the_first_rules_count_from_the_beginning() -> None:
    timeline = Timeline.of("one").extend(50)

    assert [timeline.at(each).rules for each in (-1, 0, 49)] == ["one"] * 3


def test_a_generation_counts_from_its_second_on() -> None:
    assert [TWO.at(each).rules for each in (99, 100, 159)] == ["one", "two", "two"]


def test_what_is_not_final_is_not_told() -> None:
    with pytest.raises(RulesError, match="for times before 160"):
        TWO.at(160)
    with pytest.raises(RulesError):
        TWO.of_span(10, 160)


@pytest.mark.parametrize(
    ("earliest", "latest", "rules"), [(0, 99, "one"), (100, 159, "two"), (99, 100, None), (100, 100, "two")]
)
def test_commit_times_within_one_generation_have_it_together(
    earliest: int, latest: int, rules: str | None
) -> None:
    found = TWO.of_span(earliest, latest)

    assert (found and found.rules) == rules


def test_changed_rules_begin_where_the_others_are_final_until() -> None:
    changed = TWO.change("three", 120)

    assert changed.generations == (*TWO.generations, Generation(5, 160, "three"))
    assert changed.final_until == 160


def test_changed_rules_begin_now_where_nothing_later_is_final() -> None:
    # Nothing was read for days: what was committed meanwhile goes by the rules of that time.
    assert TWO.change("three", 9000).last == Generation(5, 9000, "three")


def test_rules_that_count_already_change_nothing() -> None:
    assert TWO.change("two", 9000) == TWO


def test_rules_that_wait_to_begin_are_not_added_again() -> None:
    waiting = TWO.change("three", 500)

    assert waiting.change("three", 400) == waiting


def test_former_rules_that_return_are_a_new_generation() -> None:
    assert TWO.change("one", 200).last == Generation(5, 200, "one")


def test_rules_that_have_not_begun_are_left_out_and_their_number_is_not_used_again() -> None:
    waiting = TWO.change("three", 120)

    assert waiting.change("two", 130) == TWO
    assert waiting.change("four", 130).generations == (*TWO.generations, Generation(6, 160, "four"))


def test_rules_that_have_begun_stay_though_no_event_was_routed_by_them() -> None:
    begun = TWO.change("three", 200)

    assert begun.change("four", 205).generations[-2:] == (Generation(5, 200, "three"), Generation(6, 205, "four"))


def test_what_is_final_stays_final() -> None:
    assert TWO.extend(10).final_until == 160
    assert TWO.extend(161).final_until == 161


def test_a_timeline_continues_an_earlier_one_with_the_same_final_rules() -> None:
    later = TWO.change("three", 0).extend(300)

    assert later.continues(TWO)
    assert not TWO.continues(later)
    assert not TWO.change("other", 0).extend(300).continues(later)
    # What was not final does not count.
    assert later.continues(TWO.change("another", 0))


def test_the_last_generation_that_names_a_destination_ends_it() -> None:
    timeline = TWO.change("one", 0).change("two three", 300)

    assert timeline.ends_of(str.split) == {"one": 300, "two": None, "three": None}


def test_rules_that_return_are_stored_once() -> None:
    timeline = TWO.change("one", 0).extend(300)

    assert timeline.item()["rules"] == ["one", "two"]
    assert Timeline.from_item(json.loads(json.dumps(timeline.item()))) == timeline


def test_members_of_the_store_do_not_matter() -> None:
    assert Timeline.from_item(TWO.item() | {"id": "i", "_etag": "e", "_ts": 5}) == TWO


def generations(*members: dict[str, Any]) -> dict[str, Any]:
    return {"generations": [{"beginsAt": None, "rules": 0} | each for each in members]}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        generations(),
        generations({"number": 1, "beginsAt": 5}),
        generations({"number": 1, "rules": 7}),
        generations({"number": 1, "rules": -1}),
        generations({"number": 1, "rules": None}),
        generations({}),
        generations({"number": True}),
        generations({"number": 1}, {"number": 2}),
        generations({"number": 2}, {"number": 2, "beginsAt": 5}),
        generations({"number": 1}, {"number": 2, "beginsAt": 5}, {"number": 3, "beginsAt": 5}),
        {"generations": "none"},
        {"generations": 7},
        {"rules": [1, 2]},
        {"rules": None},
        {"finalUntil": 1.5},
        {"finalUntil": None},
    ],
)
def test_a_stored_timeline_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RulesError, match="cannot be read"):
        Timeline.from_item(TWO.item() | change)


def test_equal_rules_have_equal_texts() -> None:
    one, other = {"types": ["a"], "routes": [{"to": ["x"]}]}, {"routes": [{"to": ["x"]}], "types": ["a"]}

    assert rules_text(one) == rules_text(other)
    assert rules_text(one) != rules_text(one | {"types": ["b"]})
    assert json.loads(rules_text(one)) == one


TIMES = st.integers(0, 60)
CHANGES = st.one_of(
    st.tuples(st.just("change"), st.sampled_from("abc"), TIMES), st.tuples(st.just("extend"), st.just(""), TIMES)
)


@given(st.lists(CHANGES, max_size=12), TIMES)
def test_what_was_told_once_is_told_for_ever(changes: list[tuple[str, str, int]], time: int) -> None:
    """Whatever the clocks of those who change it say."""
    timeline = Timeline.of("a")
    told: Generation | None = None
    earlier = [timeline]
    for kind, rules, at in changes:
        timeline = timeline.change(rules, at) if kind == "change" else timeline.extend(at)
        assert Timeline.from_item(json.loads(json.dumps(timeline.item()))) == timeline
        assert all(timeline.continues(each) for each in earlier)
        earlier.append(timeline)
        if time < timeline.final_until:
            told = told or timeline.at(time)
            assert timeline.at(time) == told


@given(st.lists(CHANGES, max_size=12), TIMES, TIMES)
def test_the_rules_of_a_span_are_those_of_each_time_in_it(
    changes: list[tuple[str, str, int]], one: int, other: int
) -> None:
    timeline = Timeline.of("a")
    for kind, rules, at in changes:
        timeline = timeline.change(rules, at) if kind == "change" else timeline.extend(at)
    timeline = timeline.extend(61)
    earliest, latest = min(one, other), max(one, other)

    found = {timeline.at(each) for each in range(earliest, latest + 1)}

    assert timeline.of_span(earliest, latest) == (found.pop() if len(found) == 1 else None)
