"""The level of an attempt's line, and what it says."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from relay.attempt import Pace, attempting
from relay.outcome import Outcome

ORDINARY: dict[str, Any] = {
    "ignored": 1,
    "published": 2,
    "remembered": 0,
    "superseded": 0,
    "quarantined": Counter[str](),
    "unsent": 0,
    "partitions": 1,
    "sends": 1,
    "failed": [],
}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("relay.attempt._pace", Pace(60, clock))
    return clock


def line(caplog: pytest.LogCaptureFixture, retry_count: int = 0, **outcome: Any) -> logging.LogRecord:
    """The record of an attempt that came to this outcome."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "relay.attempt"), attempting("i1", retry_count, "topic") as attempt:
        attempt.settled(Outcome(**(ORDINARY | outcome)))
    return next(record for record in caplog.records if vars(record)["action"] == "relay_batch")


def test_ordinary_attempts_have_their_line_at_information_once_a_minute(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    levels = []
    for clock.now_s in (1000.0, 1001.0, 1059.9, 1060.0, 1061.0, 1200.0):
        levels.append(line(caplog).levelname)

    assert levels == ["INFO", "DEBUG", "DEBUG", "INFO", "DEBUG", "INFO"]


@pytest.mark.parametrize(
    "unusual",
    [
        {"retry_count": 1},
        {"remembered": 1},
        {"superseded": 1},
        {"unsent": 1},
        {"quarantined": Counter({"id-empty": 1})},
    ],
    ids=lambda unusual: next(iter(unusual)),
)
def test_anything_unusual_has_its_line_at_information(
    unusual: dict[str, Any], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    line(caplog)
    assert line(caplog).levelname == "DEBUG"

    assert line(caplog, **unusual).levelname == "INFO"


def test_the_line_has_every_number_of_the_outcome(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    record = line(caplog, superseded=3)

    assert "superseded 3" in record.getMessage()
    told = vars(record)
    expected = {name: value for name, value in ORDINARY.items() if name not in ("failed", "quarantined")}
    assert {name: told[name] for name in expected} == expected | {"superseded": 3}
