"""The checker: what it finds in a journal, and what it allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.journal.building import KEY, Building, event
from verification.journal import entries
from verification.journal.__main__ import main
from verification.journal.checker import Policy, Report, Wrong, check
from verification.journal.entries import save

PARK, BLOCK, SKIP = Policy.PARK, Policy.BLOCK, Policy.SKIP


def found(journal: Building, policy: Policy = SKIP, *, is_complete: bool = True) -> dict[str, int]:
    return counts(check(journal.entries, policy, is_complete=is_complete))


def counts(report: Report) -> dict[str, int]:
    assert len(report.findings) == min(10, report.counts.total())
    return {str(wrong): times for wrong, times in report.counts.items() if times}


@pytest.mark.parametrize("policy", Policy)
def test_a_key_that_arrives_whole_and_in_order_has_no_errors(policy: Policy) -> None:
    journal = Building().committed(1, 2, 3).accepted(1, 2, 3).duplicate(2).handled(1, 2, 3)

    report = check(journal.entries, policy)

    assert report.is_right
    assert report.findings == []


def test_an_event_that_does_not_arrive_is_missing() -> None:
    assert found(Building().committed(1, 2, 3).accepted(1, 3)) == {"missing": 1}


def test_of_a_run_that_was_ended_nothing_is_missing() -> None:
    journal = Building().committed(1, 2, 3).accepted(1)

    assert found(journal, is_complete=False) == {}


def test_an_event_without_its_effect_is_missing() -> None:
    assert found(Building().committed(1, 2).accepted(1, 2).handled(1)) == {"missing": 1}


def test_each_consumer_has_each_effect() -> None:
    journal = Building().committed(1).accepted(1).handled(1, consumer="a")

    assert found(journal.handled(1, consumer="b")) == {}
    assert found(journal.handled(1, consumer="b")) == {"duplicated": 1}


def test_an_event_behind_its_successor_is_out_of_order() -> None:
    assert found(Building().committed(1, 2, 3).accepted(1, 3, 2)) == {"out_of_order": 1}


def test_keys_have_no_order_among_themselves() -> None:
    journal = Building().committed(1).committed(2, key="other")

    assert found(journal.accepted(2, key="other").accepted(1)) == {}


def test_effects_have_the_order_of_their_key() -> None:
    assert found(Building().committed(1, 2).accepted(1, 2).handled(2, 1)) == {"out_of_order": 1}


def test_a_second_acceptance_is_a_duplicate_and_a_dropped_message_is_not() -> None:
    journal = Building().committed(1, 2).accepted(1, 2).duplicate(1)

    assert found(journal) == {}
    assert found(journal.accepted(1)) == {"duplicated": 1}


def test_a_message_that_differs_is_altered() -> None:
    assert found(Building().committed(1).accepted(1, digest="d7")) == {"altered": 1}


def test_what_was_not_committed_is_altered() -> None:
    assert found(Building().committed(1).accepted(1).accepted(1, key="other")) == {"altered": 1}


def test_an_effect_is_of_a_message_that_the_topic_accepted() -> None:
    journal = Building().committed(1).accepted(1)
    journal.add(entries.Handled, **event(1), consumer="c", number=1)
    assert found(journal) == {}

    journal.add(entries.Handled, **event(1), consumer="d", number=2)

    assert found(journal) == {"altered": 1}


def test_poison_that_is_published_is_altered() -> None:
    journal = Building().committed(1, sound=False).accepted(1).set_aside(1)

    assert found(journal) == {"altered": 1, "quarantined_and_delivered": 1}


@pytest.mark.parametrize(
    "journal",
    [
        Building().accepted(1).committed(1),
        Building().committed(1).duplicate(1).accepted(1),
        Building().committed(1).handled(1).accepted(1),
        Building().committed(1, sound=False).discarded(1).set_aside(1),
        Building().committed(1).accepted(1).committed(1),
    ],
    ids=["accepted", "dropped", "handled", "discarded", "committed"],
)
def test_nothing_happens_ahead_of_its_cause(journal: Building) -> None:
    assert check(journal.entries).counts.keys() & {Wrong.UNCAUSED, Wrong.ALTERED}


def test_who_resumes_was_frozen() -> None:
    journal = Building()
    for of in (entries.Frozen, entries.Killed, entries.Resumed):
        journal.add(of, by="p1")
    assert found(journal) == {}

    journal.add(entries.Resumed, by="p1")

    assert found(journal) == {"uncaused": 1}


def test_poison_is_set_aside() -> None:
    journal = Building().committed(1, sound=False).committed(2).accepted(2)

    assert found(journal) == {"missing": 1}
    assert not check(journal.entries).is_right
    assert found(journal.set_aside(1)) == {}
    assert check(journal.entries).is_right


def test_a_sound_event_is_set_aside_by_an_order_only() -> None:
    assert found(Building().committed(1).set_aside(1)) == {"set_aside_though_sound": 1}
    assert found(Building().committed(1).parked(1)) == {"set_aside_though_sound": 1}
    assert found(Building().committed(1).ordered(1).set_aside(1)) == {}


def test_an_order_that_comes_too_late_is_allowed() -> None:
    assert found(Building().committed(1).accepted(1).ordered(1).set_aside(1)) == {}


def test_what_is_set_aside_is_not_published_unless_it_is_released() -> None:
    journal = Building().committed(1, 2).ordered(2).accepted(1).set_aside(1)

    assert found(journal.set_aside(2)) == {"quarantined_and_delivered": 1, "set_aside_though_sound": 1}


def test_with_park_a_key_stays_in_order_through_its_release() -> None:
    parked = (
        Building().committed(1).committed(2, sound=False).committed(3, 4).accepted(1).set_aside(2).parked(3, 4)
    )

    assert found(parked.discarded(2).accepted(3, 4).released(3, 4), PARK) == {}
    assert check(parked.entries, PARK).is_right


def test_with_park_a_release_in_another_order_is_found() -> None:
    parked = Building().committed(2, sound=False).committed(3, 4).set_aside(2).parked(3, 4).discarded(2)

    assert found(parked.accepted(4, 3).released(3, 4), PARK) == {"out_of_order": 1}


def test_what_is_released_was_published() -> None:
    journal = Building().committed(1, 2, 3).ordered(2).set_aside(2).accepted(1, 3).released(2)

    assert found(journal) == {"missing": 1, "uncaused": 1}


@pytest.mark.parametrize(("policy", "errors"), [(SKIP, {}), (BLOCK, {}), (PARK, {"out_of_order": 1})])
def test_without_park_a_released_event_comes_after_its_successors(policy: Policy, errors: dict[str, int]) -> None:
    journal = Building().committed(1, 2).ordered(1).set_aside(1).accepted(2, 1).released(1)

    assert found(journal, policy) == errors


def settled(settle: Callable[[Building], Building], *, before: bool) -> Building:
    journal = Building().committed(1, sound=False).committed(2).set_aside(1)
    return settle(journal).accepted(2) if before else settle(journal.accepted(2))


@pytest.mark.parametrize(
    ("policy", "settle"),
    [(PARK, lambda journal: journal.discarded(1)), (BLOCK, lambda journal: journal.ordered(1))],
    ids=["park", "block"],
)
def test_later_events_are_held_back_until_poison_is_settled(
    policy: Policy, settle: Callable[[Building], Building]
) -> None:
    assert found(settled(settle, before=True), policy) == {}
    assert found(settled(settle, before=False), policy) == {"ahead_of_poison": 1}
    assert found(settled(settle, before=False), SKIP) == {}


def test_poison_that_nobody_settles_holds_back_for_ever() -> None:
    journal = Building().committed(1, sound=False).committed(2).set_aside(1).accepted(2)

    assert found(journal, PARK) == {"ahead_of_poison": 1}


def test_with_block_nothing_is_set_aside_without_an_order() -> None:
    journal = Building().committed(1, sound=False).set_aside(1)

    assert found(journal, BLOCK) == {"without_order": 1}
    assert found(journal.ordered(1), BLOCK) == {}


def test_findings_name_the_event_and_the_lines() -> None:
    (finding,) = check(Building().committed(1).accepted(1, 1).entries).findings

    assert finding == (
        f"duplicated: line 3: event 'e1' of key {KEY!r} (committed in line 1) was accepted again, first in line 2"
    )


def test_only_the_first_findings_are_described() -> None:
    report = check(Building().committed(*range(50)).entries)

    assert report.counts[Wrong.MISSING] == 50
    assert len(report.findings) == 10


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    save(path, Building().committed(1, 2).accepted(1, 1).entries)

    assert main(["check", str(path)]) == 1

    printed = capsys.readouterr()
    assert "missing: event 'e2'" in printed.err
    assert printed.out.startswith('{"entries": 4, "missing": 1, "duplicated": 1,')
    save(path, Building().committed(1).accepted(1).entries)
    assert main(["check", str(path), "--on-poison", "park"]) == 0
    save(path, Building().committed(1, 2).accepted(2, 1).entries)
    assert main(["check", str(path), "--window-s", "300"]) == 1
    assert '"not_specified": 1' in capsys.readouterr().out


def test_a_file_that_is_no_journal_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"kind":"forgotten"}\n')

    assert main(["check", str(path)]) == 2
    assert "journal.jsonl: line 1: unknown kind 'forgotten'" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none")]) == 2
