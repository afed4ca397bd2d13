"""The alerts on consumers fire in their failure and in no other case, and the workbook shows why."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.infra.checks.alerts import rules
from tests.infra.checks.consumers import watching
from tests.infra.deployment import Resource
from tests.infra.project import ROOT, Project
from tests.infra.workspace import Row, Rows, Workspace
from tests.telemetry.alerting import alarms
from tests.telemetry.tables import ago, moved

# One process translates the queries for all of a group.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("queries")]

OF = {"topic": "domain-events", "subscription": "billing"}
GROUP = ("domain-events", "billing")
QUERIES = sorted((ROOT / "infra/queries/consumers").glob("*.kql"))


@cache
def consumer_rules() -> dict[str, Resource]:
    return rules(watching(Project(ROOT)))


def metric(name: str, value: float, **properties: Any) -> Row:
    """One export of an instrument, as the exporter of Application Insights sends it."""
    return {
        "TimeGenerated": ago(minutes=2),
        "Name": f"inbox.{name}",
        "Sum": value,
        "Max": value,
        "Min": value,
        "ItemCount": 1,
        "Properties": OF | properties,
    }


def fired(*rows: Row) -> dict[str, set[tuple[Any, ...]]]:
    return alarms({"AppMetrics": list(rows)}, rules=consumer_rules())


HEALTHY = [
    metric("handled", 900),
    metric("sessions", 16),
    metric("lag", 2.5),
    metric("retries", 3, error="OSError"),
]


def test_a_healthy_consumer_is_silent() -> None:
    assert fired(*HEALTHY) == {}
    assert fired() == {}


def test_a_late_event_raises_an_alert_for_its_subscription() -> None:
    assert fired(*HEALTHY, metric("lag", 301.0)) == {"consumer-lag": {GROUP}}
    past: Rows = moved({"AppMetrics": [metric("lag", 301.0)]}, minutes=-15)
    assert alarms(past, rules=consumer_rules()) == {}


def test_repeated_failures_and_dead_letters_of_one_cause_raise_an_alert() -> None:
    reasons = {"retries": "error", "dead_lettered": "reason", "parked": "reason"}
    names = {"retries": "failed", "dead_lettered": "dead-lettered", "parked": "parked"}
    for name, attribute in reasons.items():
        rows = [metric(name, 3, **{attribute: "x"}), metric(name, 3, **{attribute: "x"})]
        assert fired(*HEALTHY, *rows) == {"consumer-failing": {(*GROUP, f"{names[name]}: x")}}
    # Of different causes, each is few.
    assert fired(*HEALTHY, metric("retries", 3, error="ValueError")) == {}


@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
def test_every_panel_shows_the_subscription(file: Path) -> None:
    rows = [*HEALTHY, metric("gaps", 2), metric("dead_lettered", 1, reason="unreadable")]
    with Workspace({"AppMetrics": rows}) as workspace:
        shown = workspace.query(file.read_text(encoding="utf-8"))
    with Workspace({}) as workspace:
        assert workspace.query(file.read_text(encoding="utf-8")) == []

    assert {(row["Topic"], row["Subscription"]) for row in shown} == {GROUP}
