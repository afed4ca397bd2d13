"""The alert rules, and their sections in the runbook."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from tests.infra.checks.queries import queries, with_stream
from tests.infra.deployment import Deployment, DeploymentFailure, Resource
from tests.infra.project import (
    ACTION_GROUP,
    COSMOS,
    SERVICE_BUS,
    SITES,
    TOPICS,
    WORKSPACE,
    Project,
    check,
    check_each,
)

LOG_RULES = "Microsoft.Insights/scheduledQueryRules"
METRIC_RULES = "Microsoft.Insights/metricAlerts"
ACTIVITY_RULES = "Microsoft.Insights/activityLogAlerts"

PLATFORM_METRICS = {
    (SERVICE_BUS, "DeadletteredMessages"): ({"Average", "Minimum", "Maximum"}, {"EntityName"}),
    (SERVICE_BUS, "Size"): ({"Average", "Minimum", "Maximum"}, {"EntityName"}),
    (SERVICE_BUS, "ActiveMessages"): ({"Average", "Minimum", "Maximum"}, {"EntityName"}),
    (SERVICE_BUS, "ActiveConnections"): ({"Total"}, set()),
    (SERVICE_BUS, "IncomingMessages"): ({"Total"}, {"EntityName"}),
    (SERVICE_BUS, "OutgoingMessages"): ({"Total"}, {"EntityName"}),
    (SERVICE_BUS, "ThrottledRequests"): ({"Total"}, {"EntityName", "OperationResult", "MessagingErrorSubCode"}),
    (COSMOS, "TotalRequests"): ({"Count"}, {"CollectionName", "OperationType", "StatusCode"}),
    (COSMOS, "TotalRequestUnits"): ({"Total", "Average", "Maximum"}, {"CollectionName", "StatusCode"}),
    (COSMOS, "NormalizedRUConsumption"): ({"Maximum", "Average"}, {"CollectionName"}),
}
"""Aggregations and dimensions of platform metrics, as documented.

https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-servicebus-namespaces-metrics
https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-documentdb-databaseaccounts-metrics
"""


class Alert(NamedTuple):
    """The severity and the condition of an alert."""

    severity: int
    measure: str
    aggregation: str
    operator: str
    threshold: int


ALERTS = {
    "lag": Alert(2, "LagSeconds", "Maximum", "GreaterThan", 300),
    "unpublished": Alert(1, "AgeSeconds", "Maximum", "GreaterThan", 300),
    "ttl-headroom": Alert(0, "HeadroomHours", "Minimum", "LessThan", 24),
    "quarantine": Alert(2, "Quarantined", "Total", "GreaterThan", 0),
    "failing": Alert(1, "Failures", "Total", "GreaterThan", 5),
    "undelivered": Alert(1, "Warnings", "Total", "GreaterThan", 10),
    "silent": Alert(1, "", "Count", "GreaterThan", 0),
    "unloaded": Alert(1, "", "Count", "GreaterThan", 0),
    "quota": Alert(1, "Refusals", "Total", "GreaterThan", 0),
    "dead-letters": Alert(2, "DeadletteredMessages", "Maximum", "GreaterThan", 0),
    "backlog": Alert(3, "ActiveMessages", "Minimum", "GreaterThan", 1000),
    "connections": Alert(2, "ActiveConnections", "Total", "GreaterThan", 4000),
    "servicebus-throttling": Alert(3, "ThrottledRequests", "Total", "GreaterThan", 100),
    "cosmos-throttling": Alert(3, "TotalRequests", "Count", "GreaterThan", 100),
    "topic-size": Alert(1, "Size", "Maximum", "GreaterThan", 5120 * 16 * 10485 * 60),
}
SECTIONS = [*ALERTS, "stopped"]
"""Sections of the runbook, each with the name of an alert. The last alert reads the activity log."""


def rules(deployment: Deployment) -> dict[str, Resource]:
    """Every alert rule, by name."""
    found = (*deployment.of(LOG_RULES), *deployment.of(METRIC_RULES))
    return {rule.name.removeprefix("relay-").rpartition("-")[0]: rule for rule in found}


def condition(rule: Resource) -> dict[str, Any]:
    """The only condition of a rule."""
    [only] = rule.at("properties.criteria.allOf")
    return dict(only)


def deployed(rule: Resource) -> Alert:
    """The severity and the condition of a rule."""
    criterion = condition(rule)
    measure = criterion.get("metricName") or criterion.get("metricMeasureColumn", "")
    compared = (criterion["timeAggregation"], criterion["operator"], criterion["threshold"])
    return Alert(rule.at("properties.severity"), measure, *compared)


def check_scope(deployment: Deployment, name: str, rule: Resource) -> None:
    """Check that a rule is enabled, looks at the workspace or at what its metric is of, and notifies the group."""
    group = deployment.one(ACTION_GROUP).id
    assert rule.at("properties.enabled") is True, name
    of_log = rule.type == LOG_RULES
    scope = WORKSPACE if of_log else condition(rule)["metricNamespace"]
    assert rule.at("properties.scopes") == [deployment.one(scope).id], name
    assert rule.at("properties.actions") == (
        {"actionGroups": [group]} if of_log else [{"actionGroupId": group}]
    ), name


def check_sections(project: Project, heading: str, names: list[str]) -> str:
    """Check that a chapter of the runbook has these sections, each with its parts; returns the chapter."""
    text = (project.root / "docs/runbook.md").read_text(encoding="utf-8")
    chapter = text[text.index(f"\n## {heading}\n") :]
    chapter = chapter[: chapter.index("\n## ", 1)]
    assert re.findall(r"^### ([\w-]+)$", chapter, re.MULTILINE) == names
    for section in chapter.split("\n### ")[1:]:
        for part in ("**Meaning.**", "**First look.**", "**Remedy.**"):
            assert part in section, section.splitlines()[0]
    return chapter


@check
def every_listed_alert_is_deployed(project: Project) -> None:
    found = rules(project.trial)
    assert set(found) == set(ALERTS)
    for name, rule in found.items():
        assert deployed(rule) == ALERTS[name], name
        if rule.type == METRIC_RULES:
            assert condition(rule)["criterionType"] == "StaticThresholdCriterion"


@check_each
def every_alert_has_the_right_scope_and_notifies_the_operators(deployment: Deployment) -> None:
    for name, rule in rules(deployment).items():
        check_scope(deployment, name, rule)
        if rule.type == LOG_RULES:
            assert rule.at("kind") == "LogAlert"
            assert rule.at("properties.skipQueryValidation") is True, name


@check_each
def a_stopped_app_raises_an_alert(deployment: Deployment) -> None:
    rule = deployment.one(ACTIVITY_RULES)
    conditions = {each["field"]: each["equals"] for each in rule.at("properties.condition.allOf")}
    assert conditions == {
        "category": "Administrative",
        "operationName": f"{SITES}/stop/action",
        "status": "Succeeded",
    }
    assert (rule.at("location"), rule.at("properties.enabled")) == ("global", True)
    assert rule.at("properties.scopes") == [deployment.one(SITES).id]
    group = deployment.one(ACTION_GROUP).id
    assert rule.at("properties.actions") == {"actionGroups": [{"actionGroupId": group}]}


@check
def every_alert_has_a_valid_window_and_frequency(project: Project) -> None:
    minutes = {"PT1M": 1, "PT5M": 5, "PT15M": 15, "PT30M": 30}
    for name, rule in rules(project.trial).items():
        window, frequency = rule.at("properties.windowSize"), rule.at("properties.evaluationFrequency")
        assert minutes[frequency] <= minutes[window] <= 30, name
        assert minutes[frequency] <= 15, name
    # Its only aggregation is a sum over the minutes, which counts a connection once a minute.
    assert rules(project.trial)["connections"].at("properties.windowSize") == "PT1M"
    # The query looks back as far.
    assert rules(project.trial)["silent"].at("properties.windowSize") == "PT30M"
    assert max(re.findall(r"ago\((\d+)m\)", queries(project)["silent.kql"].text), key=int) == "30"
    # The line that names the reason is older than the time without a report.
    assert rules(project.trial)["unloaded"].at("properties.windowSize") == "PT30M"
    assert re.findall(r"ago\((\d+)m\)", queries(project)["unloaded.kql"].text) == ["15"]


@check
def an_alert_resolves_unless_its_cause_persists(project: Project) -> None:
    for name, rule in rules(project.trial).items():
        resolves = rule.at("properties.autoMitigate")
        assert resolves is (name not in ("quarantine", "quota")), name
        # Azure rejects the two together.
        assert (rule.at("properties.muteActionsDuration") is None) is resolves, name


@check
def an_alert_uses_columns_that_its_query_returns(project: Project) -> None:
    texts = {with_stream(query): query for query in queries(project).values()}
    for name, rule in rules(project.deploy(cosmosContainer="$(container)")).items():
        if rule.type == LOG_RULES:
            criterion = condition(rule)
            query = texts[criterion["query"]]
            split = [each["name"] for each in criterion["dimensions"]]
            measured = criterion.get("metricMeasureColumn", "Says" if name == "unloaded" else "Sign")
            assert {*split, measured} <= query.columns, name
            assert all(each["values"] == ["*"] for each in criterion["dimensions"]), name
            assert criterion["failingPeriods"] == {"numberOfEvaluationPeriods": 1, "minFailingPeriodsToAlert": 1}
    split_by = {
        name: [each["name"] for each in condition(rule)["dimensions"]]
        for name, rule in rules(project.trial).items()
    }
    assert (split_by["quarantine"], split_by["failing"], split_by["silent"]) == (["Reason"], ["Error"], ["Sign"])
    assert split_by["unpublished"] == ["Partition"]
    # Of the only stream, nothing is said.
    assert not any("Stream" in columns for columns in split_by.values())


@check
def alerts_use_platform_metrics_as_documented(project: Project) -> None:
    for rule in project.trial.of(METRIC_RULES):
        criterion = condition(rule)
        aggregations, dimensions = PLATFORM_METRICS[criterion["metricNamespace"], criterion["metricName"]]
        assert criterion["timeAggregation"] in aggregations, rule.name
        assert {each["name"] for each in criterion["dimensions"]} <= dimensions, rule.name
        criteria = rule.at("properties.criteria")
        assert criteria["odata.type"] == "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria"

    values = {
        name: condition(rule)["dimensions"] for name, rule in rules(project.deploy(serviceBusTopic="t")).items()
    }
    assert [each["values"] for each in values["dead-letters"]] == [["t"]]
    assert [each["values"] for each in values["topic-size"]] == [["t"]]
    assert [each["values"] for each in values["backlog"]] == [["t"]]
    assert [each["values"] for each in values["cosmos-throttling"]] == [["429"]]


@check
def the_size_alert_compares_with_the_topics_capacity(project: Project) -> None:
    for deployment, partitions in ((project.trial, 16), (project.production, 1)):
        megabytes = deployment.one(TOPICS).at("properties.maxSizeInMegabytes") * partitions
        threshold = condition(rules(deployment)["topic-size"])["threshold"]
        assert 0.59 < threshold / (megabytes * 1024 * 1024) < 0.6


@check
def thresholds_can_be_overridden_and_unknown_ones_are_rejected(project: Project) -> None:
    changed = {
        "lagSeconds": ("lag", 60),
        "unpublishedSeconds": ("unpublished", 60),
        "headroomHours": ("ttl-headroom", 72),
        "quarantined": ("quarantine", 3),
        "failedAttempts": ("failing", 50),
        "leaseWarnings": ("undelivered", 20),
        "deadLetters": ("dead-letters", 7),
        "activeMessages": ("backlog", 5),
        "connections": ("connections", 900),
        "throttledRequests": ("cosmos-throttling", 9),
    }
    for threshold, (name, value) in changed.items():
        found = rules(project.deploy(alertThresholds={threshold: value}))
        assert condition(found[name])["threshold"] == value
        assert condition(found["topic-size"])["threshold"] == ALERTS["topic-size"].threshold
    with pytest.raises(
        DeploymentFailure, match="alertThresholds has an unknown name; the known ones are: activeMessages, "
    ):
        project.deploy(alertThresholds={"lagSecond": 60}).of(LOG_RULES)


@check
def every_alert_links_to_its_section_of_the_runbook(project: Project) -> None:
    runbook = check_sections(project, "Alerts", SECTIONS)
    deployment = project.deploy(runbook="https://example.org/runbook.md")
    found = {**rules(deployment), "stopped": deployment.one(ACTIVITY_RULES)}

    assert set(found) == set(SECTIONS)
    for section in runbook.split("\n### ")[1:]:
        assert "```" in section, section.splitlines()[0]
    for name, rule in found.items():
        assert rule.at("properties.description").endswith(f" https://example.org/runbook.md#{name}"), name


@check
def the_runbook_lists_the_deployed_thresholds(project: Project) -> None:
    text = (project.root / "docs/runbook.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE))
    written = (project.infra / "modules/alerts.bicep").read_text(encoding="utf-8")
    defaults = written[written.index("var defaults = {") :]
    deployed = dict(re.findall(r"^  (\w+): (\d+)$", defaults[: defaults.index("\n}")], re.MULTILINE))

    assert documented == deployed
    described = (project.infra / "main.bicep").read_text(encoding="utf-8")
    for name, value in deployed.items():
        assert f"{name} ({value})" in described


@check
def the_pages_count_the_alert_rules(project: Project) -> None:
    deployment = project.production

    assert (len(deployment.of(LOG_RULES)), len(deployment.of(METRIC_RULES))) == (9, 6)
    for page, sentence in (
        ("capacity", "nine rules on logs, six on metrics"),
        ("runbook", "nine rules on queries, six rules on the services' own metrics"),
    ):
        assert sentence in (project.root / f"docs/{page}.md").read_text(encoding="utf-8"), page
