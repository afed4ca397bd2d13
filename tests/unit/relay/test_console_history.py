"""The last hour: what was observed in each slot and nothing else, in bounded memory, and drawn as it was."""

from __future__ import annotations

import json
import re
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.history import SLOT_S, SLOTS, History, Ring
from outbox_relay.operator.console.model import Subscription
from outbox_relay.operator.console.pages import HEIGHT, ConsoleSettings, Pages, charts
from outbox_relay.operator.console.stream import encoded
from tests.support.console_deployment import NOW, Deployment
from tests.support.console_view import NOON, busy

START = 1_000_000
NOTES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9)), max_size=40)


@given(NOTES, st.integers(0, 9000))
def test_each_slot_has_what_was_read_in_it_and_no_other_has_anything(
    notes: list[tuple[int, int]], later: int
) -> None:
    ring, now = Ring(), START + max((second for second, _ in notes), default=0) + later
    for second, figure in sorted(notes, key=lambda note: note[0]):
        for measure in ("lag_s", "quarantined", "dead_lettered"):
            ring.note(measure, float(START + second), figure)
        ring.note_rate(float(START + second), figure)

    found = ring.history(now)

    slots = set(range(now // SLOT_S - SLOTS, now // SLOT_S))
    read: dict[int, list[int]] = {}
    for second, figure in sorted(notes, key=lambda note: note[0]):
        read.setdefault((START + second) // SLOT_S, []).append(figure)
    first = None if found.since is None else int(found.since) // SLOT_S
    shown = {} if first is None else {first + i: value for i, value in enumerate(found.lag_s) if value is not None}
    assert shown == {slot: max(figures) for slot, figures in read.items() if slot in slots}
    assert found.lag_s == found.quarantined == found.dead_lettered
    rates = {} if first is None else {first + i: value for i, value in enumerate(found.published_s)}
    assert {slot: rate for slot, rate in rates.items() if rate is not None} == {
        slot: figures[-1] for slot, figures in read.items() if slot in slots and slot - 1 in read
    }
    assert len(found.lag_s) == len(found.published_s) <= SLOTS
    # The last slot is the one that has just ended, so that a chart ends now.
    assert first is None or first + len(found.lag_s) == now // SLOT_S


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6, allow_nan=False)), max_size=SLOTS))
def test_a_line_is_level_in_each_slot_and_absent_where_nothing_was_observed(values: list[float | None]) -> None:
    [chart, *_] = charts(History(0.0, published_s=values))

    window = [*[None] * (SLOTS - len(values)), *values]
    most = max((each for each in values if each is not None), default=0.0) or 1.0
    drawn = drawn_by(chart.line)
    assert set(drawn) == {slot for slot, value in enumerate(window) if value is not None}
    for slot, height in drawn.items():
        assert height == pytest.approx(HEIGHT - HEIGHT * (window[slot] or 0.0) / most, abs=0.06)
    gaps = re.findall(r"M(\d+) 0h(\d+)v40h-\2z", chart.gaps)
    hidden = [slot for start, length in gaps for slot in range(int(start), int(start) + int(length))]
    assert hidden == [slot for slot, value in enumerate(window) if value is None]
    assert re.fullmatch(r"[MHVhvz\d .-]*", chart.line + chart.gaps)


def drawn_by(path: str) -> dict[int, float]:
    """The height of a path in each slot; a path has no other lines than level and upright ones."""
    found: dict[int, float] = {}
    for start, steps in re.findall(r"M(\d+) [\d.]+((?:V[\d.]+H\d+)+)", path):
        slot = int(start)
        for height, end in re.findall(r"V([\d.]+)H(\d+)", steps):
            found |= dict.fromkeys(range(slot, int(end)), float(height))
            slot = int(end)
    return found


async def test_the_observer_keeps_an_hour_of_what_it_reads() -> None:
    relayed = Deployment()
    relayed.topic.counts = [Subscription("all", 0, 2), Subscription("billing", 0, 1)]
    relayed.outbox.commit("late", committed_at=NOW - 30)
    await relayed.observer.look()
    relayed.now += 10
    relayed.quarantine("late")
    relayed.outbox.pass_all()
    await relayed.observer.look()
    # Nobody looks for a while.
    relayed.now += 40
    await relayed.observer.look()
    relayed.now += 10

    history = (await relayed.observer.look()).history

    assert history == History(
        NOW,
        SLOT_S,
        published_s=(None, 0.0, None, None, None, None),
        lag_s=(30.0, 0.0, None, None, None, 0.0),
        quarantined=(0, 1, None, None, None, 1),
        dead_lettered=(3, 3, None, None, None, 3),
    )
    assert json.loads(encoded(relayed.observer.latest))["history"]["lag_s"] == [30.0, 0.0, None, None, None, 0.0]


async def test_what_cannot_be_read_has_no_value_in_the_last_hour() -> None:
    relayed = Deployment()
    await relayed.observer.look()
    relayed.outbox.fails = relayed.topic.fails = "the account does not answer"
    for _ in range(3):
        relayed.now += 10
        await relayed.observer.look()

    history = relayed.observer.latest.history

    assert history.lag_s == (0.0, None, None)
    assert history.dead_lettered == (0, None, None)
    assert history.quarantined == (0, 0, 0)


async def test_no_more_than_an_hour_is_kept_however_long_it_is_watched() -> None:
    relayed = Deployment()
    for _ in range(2 * SLOTS):
        relayed.now += SLOT_S
        await relayed.observer.look()

    history = relayed.observer.latest.history

    assert {len(each) for each in astuple(history)[2:]} == {SLOTS}
    assert history.since == relayed.now // SLOT_S * SLOT_S - 3600


def test_the_page_has_a_chart_of_each_measure_with_its_largest_value_and_what_is_missing() -> None:
    pages = Pages("t", ConsoleSettings(), Commands(), ())

    section = pages.sections(busy())["history"].replace("\u202f", " ")

    assert re.findall('aria-label="([^"]*)"', section) == [
        "Accepted a second over the last hour: at most 30; not observed for 7 min 40 s",
        "Lag over the last hour: at most 41 s; not observed for 7 min 30 s",
        "In quarantine over the last hour: at most 3; not observed for 7 min 30 s",
        "Dead letters over the last hour: at most 1; not observed for 7 min 30 s",
    ]
    assert "style=" not in section
    assert busy().history.since == NOON + 20 - 3600
