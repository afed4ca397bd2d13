"""Rates from readings of a stack's counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from local.stack.live import table
from local.stack.rates import Rates, Reading

CALM = Reading(at=100.0, documents=50, relayed=40, quarantined=1, dead_lettered=2, failures=3, lag_s=0.0)


def test_rates_are_differences_per_second() -> None:
    later = replace(CALM, at=104.0, documents=90, relayed=60, quarantined=3, failures=4, lag_s=7.6)

    rates = Rates.between(CALM, later)

    assert (rates.documents_s, rates.relayed_s) == (10.0, 5.0)
    assert (rates.lag_s, rates.quarantined, rates.dead_lettered, rates.failures) == (7.6, 3, 2, 1)
    assert not rates.idle
    assert rates.line() == (
        "10.0 documents/s written, 5.0 events/s relayed, 8 s behind, 3 quarantined, 2 dead-lettered, "
        "1 failed attempts"
    )


def test_failures_that_are_not_counted_are_not_shown_as_none() -> None:
    before, after = replace(CALM, failures=None), replace(CALM, at=101.0, failures=None)

    rates = Rates.between(before, after)

    assert rates.idle
    assert rates.line().endswith("2 dead-lettered, - failed attempts")


def test_a_restarted_counter_gives_no_negative_rate() -> None:
    restarted = replace(CALM, at=101.0, documents=0, relayed=0, failures=0)

    rates = Rates.between(CALM, restarted)

    assert (rates.documents_s, rates.relayed_s, rates.failures) == (0, 0, 0)


@pytest.mark.parametrize(
    ("after", "idle"),
    [
        (replace(CALM, at=110.0), True),
        (replace(CALM, at=110.0, lag_s=None), True),
        (replace(CALM, at=110.0, lag_s=2.0), False),
        (replace(CALM, at=110.0, dead_lettered=3), False),
    ],
)
def test_a_stack_is_idle_when_no_count_changed_and_the_feed_is_drained(after: Reading, idle: bool) -> None:
    assert Rates.between(CALM, after).idle is idle


def test_a_feed_that_was_never_read_has_no_lag() -> None:
    assert ", - s behind," in Rates.between(CALM, replace(CALM, at=101.0, lag_s=None)).line()


def test_the_second_reading_must_be_later() -> None:
    with pytest.raises(ValueError, match="later"):
        Rates.between(CALM, CALM)


def test_the_table_shows_each_number_under_its_name() -> None:
    rates = Rates.between(CALM, replace(CALM, at=101.0, relayed=45))

    shown = table(rates)

    assert [str(column.header) for column in shown.columns] == [name for name, _ in rates.columns()]
    assert [next(iter(column.cells)) for column in shown.columns] == ["0.0", "5.0", "0", "1", "2", "0"]
