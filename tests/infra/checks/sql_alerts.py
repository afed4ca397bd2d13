"""The alert rules of a relay with an outbox in SQL, their queries and their sections in the runbook."""

from __future__ import annotations

import re

import pytest

from tests.infra import instruments
from tests.infra.checks.alerts import (
    ALERTS,
    LOG_RULES,
    METRIC_RULES,
    Alert,
    check_scope,
    check_sections,
    condition,
    deployed,
    rules,
)
from tests.infra.deployment import Deployment, DeploymentFailure
from tests.infra.kql import Query
from tests.infra.project import SERVICE_BUS, WORKERS, Project, check, check_each_sql

SHARED = (
    "lag",
    "unpublished",
    "quarantine",
    "failing",
    "quota",
    "dead-letters",
    "backlog",
    "connections",
    "servicebus-throttling",
    "topic-size",
)
OWN = {
    "unowned": Alert(1, "", "Count", "GreaterThan", 0),
    "restarting": Alert(2, "RestartCount", "Maximum", "GreaterThan", 5),
}

# https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-app-containerapps-metrics
RESTART_AGGREGATIONS = {"Average", "Total", "Maximum", "Minimum"}


def sql_queries(project: Project) -> dict[str, Query]:
    """Every query file of an outbox in SQL."""
    files = sorted((project.infra / "queries/sql").glob("*.kql"))
    return {file.name: Query(file.name, file.read_text(encoding="utf-8")) for file in files}


@check
def every_listed_alert_of_an_sql_outbox_is_deployed(project: Project) -> None:
    found = rules(project.deploy_sql())
    assert set(found) == {*SHARED, *OWN}
    for name, rule in found.items():
        assert deployed(rule) == (OWN | ALERTS)[name], name
    assert condition(found["restarting"])["timeAggregation"] in RESTART_AGGREGATIONS


@check_each_sql
def alerts_of_an_sql_outbox_have_the_right_scope(deployment: Deployment) -> None:
    for name, rule in rules(deployment).items():
        check_scope(deployment, name, rule)
        if rule.type == METRIC_RULES:
            assert condition(rule)["metricNamespace"] == (WORKERS if name == "restarting" else SERVICE_BUS)


@check
def queries_of_an_sql_outbox_use_what_the_relay_reports(project: Project) -> None:
    known = instruments.attributes((project.root / "docs/telemetry.md").read_text(encoding="utf-8"))
    found = sql_queries(project)
    assert set(found) == {"unowned.kql"}
    for query in found.values():
        assert re.match(r"[A-Z][^?]+\? ", query.header), query.name
        assert query.metrics == {"relay.feed.age"} <= set(instruments.instruments())
        assert query.properties == known["relay.feed.age"] - {"lease"} == {"shard"}
        # A gauge has one column.
        assert not set(query.tokens) & {"Max", "Min", "ItemCount"}


@check
def alerts_of_an_sql_outbox_use_columns_that_their_queries_return(project: Project) -> None:
    texts = {query.text.replace("$(shards)", "5"): query for query in sql_queries(project).values()}
    found = rules(project.deploy_sql(shards=5))
    criterion = condition(found["unowned"])
    assert "Read" in texts[criterion["query"]].columns
    assert criterion["dimensions"] == []
    # The query looks back for ten minutes.
    assert found["unowned"].at("properties.windowSize") == "PT15M"
    for rule in found.values():
        assert rule.type in (LOG_RULES, METRIC_RULES)
        assert "$(" not in str(condition(rule))


@check
def thresholds_of_an_sql_outbox_can_be_overridden(project: Project) -> None:
    changed = {
        "unpublishedSeconds": ("unpublished", 60),
        "restarts": ("restarting", 9),
        "lagSeconds": ("lag", 70),
        "connections": ("connections", 900),
    }
    for threshold, (name, value) in changed.items():
        found = rules(project.deploy_sql(alertThresholds={threshold: value}))
        assert condition(found[name])["threshold"] == value
    with pytest.raises(DeploymentFailure, match="alertThresholds has an unknown name; the known ones are: "):
        project.deploy_sql(alertThresholds={"headroomHours": 2}).of(LOG_RULES)


@check
def every_alert_of_an_sql_outbox_links_to_its_section_of_the_runbook(project: Project) -> None:
    check_sections(project, "Alerts of an SQL outbox", list(OWN))
    found = rules(project.deploy_sql(runbook="https://example.org/runbook.md"))

    assert set(found) == {*SHARED, *OWN}
    for name, rule in found.items():
        assert rule.at("properties.description").endswith(f" https://example.org/runbook.md#{name}"), name


@check
def every_threshold_of_an_sql_outbox_is_described(project: Project) -> None:
    written = (project.infra / "modules/sql-alerts.bicep").read_text(encoding="utf-8")
    defaults = written[written.index("var defaults = {") :]
    names = set(re.findall(r"^  (\w+): \d+$", defaults[: defaults.index("\n}")], re.MULTILINE))
    [described] = re.findall(r"override, by name: ([^.]+)\.", (project.infra / "sql.bicep").read_text())

    assert set(described.split(", ")) == names
