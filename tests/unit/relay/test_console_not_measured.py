"""A dash instead of a latency has its reason, next to it on the page, in the timeline and in JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_relay.operator.console import formatting
from outbox_relay.operator.console.history import NO_START
from outbox_relay.operator.console.model import Flow, Snapshot, Stage, Timeline, Tracked, members
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from tests.support.console_view import NOON, committed, current, tracked

MEASURED = committed(1, committed_at=NOON - 10.5)
"""By the clock of an SQL database."""

OF_A_SECOND = committed(2, committed_at=NOON - 10)
"""Of Cosmos DB, whose writer has left out `data.createdAt`."""


def measures(recent: list[Tracked], **flow: float | None) -> str:
    snapshot = Snapshot(
        1,
        NOON,
        Flow(NOON - 3600, **{"published": 5, **flow}),  # type: ignore[arg-type]
        recent=recent,
        known=current(NOON),
    )
    return Pages("t", ConsoleSettings(), formatting.Commands(), ()).sections(snapshot)["measures"]


@pytest.mark.parametrize(
    ("recent", "reason"),
    [
        ([], "no event was accepted in the last minute"),
        ([tracked(committed(3), Stage.COMMITTED)], "no event was accepted in the last minute"),
        ([tracked(committed(3, committed_at=NOON - 61))], "no event was accepted in the last minute"),
        ([tracked(OF_A_SECOND)], NO_START),
        ([replace(tracked(MEASURED), published_at=None)], "it was accepted before the console looked"),
    ],
)
def test_a_dash_for_the_latency_has_its_reason_below_it(recent: list[Tracked], reason: str) -> None:
    assert measures(recent).count(f'<dd class="when">{reason}</dd>') == 2  # p50 and p99


@pytest.mark.parametrize("flow", [{"latency_p50_ms": 34.0, "latency_p99_ms": 212.0}, {"published": None}])
def test_a_latency_or_nothing_read_yet_needs_no_reason(flow: dict[str, float | None]) -> None:
    assert 'class="when"' not in measures([tracked(OF_A_SECOND)], **flow)


def test_the_timeline_shows_the_reason_next_to_the_step() -> None:
    events = (tracked(MEASURED), tracked(OF_A_SECOND), tracked(committed(3), Stage.COMMITTED))

    page = Pages("t", ConsoleSettings(), formatting.Commands(), ()).timeline(Timeline("k", events))
    found = members(Timeline("k", events))["events"]

    assert page.count(f'<span class="why">not measured: {NO_START}</span>') == 1
    assert [each["not_measured"] for each in found] == [None, NO_START, None]
