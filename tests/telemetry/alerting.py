"""Which alert rules of the deployment would fire on the rows of a workspace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from tests.infra.checks.alerts import LOG_RULES, condition
from tests.infra.deployment import Resource
from tests.infra.project import ROOT, Project
from tests.infra.workspace import Row, Rows, Workspace
from tests.telemetry.tables import ago

_AGGREGATIONS: dict[str, Callable[[list[Any]], float]] = {
    "Count": len,
    "Maximum": max,
    "Minimum": min,
    "Total": sum,
}
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThan": lambda value, threshold: value > threshold,
    "LessThan": lambda value, threshold: value < threshold,
}
OUTBOX = "outbox"


@cache
def log_rules() -> dict[str, Resource]:
    """The rules of the deployment that ask the workspace, by name."""
    found = Project(ROOT).deploy(cosmosContainer=OUTBOX).of(LOG_RULES)
    return {rule.name.removeprefix("relay-").rpartition("-")[0]: rule for rule in found}


@cache
def log_rules_of_streams(*others: str) -> dict[str, Resource]:
    """Return the log rules by name, of an app that reads its outbox for further streams too."""
    streams = [{"name": name} for name in ("default", *others)]
    found = Project(ROOT).deploy(cosmosContainer=OUTBOX, streams=streams).of(LOG_RULES)
    return {rule.name.removeprefix("relay-").rpartition("-")[0]: rule for rule in found}


@cache
def sql_log_rules(shards: int) -> dict[str, Resource]:
    """The rules that ask the workspace, of a deployment with an outbox in SQL."""
    found = Project(ROOT).deploy_sql(shards=shards).of(LOG_RULES)
    return {rule.name.removeprefix("relay-").rpartition("-")[0]: rule for rule in found}


def alarms(
    rows: Rows, *, missing: frozenset[str] = frozenset(), rules: dict[str, Resource] | None = None
) -> dict[str, set[tuple[Any, ...]]]:
    """The alerts that fire now, each with the values of its dimensions for which it does.

    A rule's query sees the rows of the rule's window. `rules` are by default those of an outbox in Cosmos DB.
    """
    rules = log_rules() if rules is None else rules
    windows: dict[timedelta, list[str]] = defaultdict(list)
    for name, rule in rules.items():
        windows[_window(rule)].append(name)
    firing: dict[str, set[tuple[Any, ...]]] = {}
    for window, names in windows.items():
        since = ago() - window
        seen = {table: [row for row in found if row["TimeGenerated"] >= since] for table, found in rows.items()}
        with Workspace(seen, missing=missing) as workspace:
            firing |= {name: _firing(rules[name], workspace) for name in names}
    return {name: groups for name, groups in firing.items() if groups}


def _firing(rule: Resource, workspace: Workspace) -> set[tuple[Any, ...]]:
    """The groups of one rule that are beyond its threshold.

    The answers of its query are grouped by the dimensions, and the measured column of each group is summed up.
    https://learn.microsoft.com/azure/azure-monitor/alerts/alerts-types#log-alerts
    """
    asked = condition(rule)
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for answer in workspace.query(asked["query"]):
        groups[tuple(answer[each["name"]] for each in asked["dimensions"])].append(answer)
    beyond = _OPERATORS[asked["operator"]]
    summed_up = _AGGREGATIONS[asked["timeAggregation"]]
    measured = asked.get("metricMeasureColumn")
    return {
        group
        for group, members in groups.items()
        if beyond(summed_up([member[measured] if measured else 1 for member in members]), asked["threshold"])
    }


def _window(rule: Resource) -> timedelta:
    window = rule.at("properties.windowSize")
    return timedelta(minutes=int(window.removeprefix("PT").removesuffix("M")))
