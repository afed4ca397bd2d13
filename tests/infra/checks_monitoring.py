"""Alerts, queries and runbook: they have to speak of one thing, and of what the relay reports."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from tests.infra import instruments
from tests.infra.deployment import Deployment, Resource
from tests.infra.functions import DeploymentFailure
from tests.infra.kql import Query
from tests.infra.project import COSMOS, DIAGNOSTICS, SERVICE_BUS, SITES, TOPICS, Project, check

LOG_RULES = "Microsoft.Insights/scheduledQueryRules"
METRIC_RULES = "Microsoft.Insights/metricAlerts"
ACTIVITY_RULES = "Microsoft.Insights/activityLogAlerts"
WORKSPACE = "Microsoft.OperationalInsights/workspaces"
COMPONENT = "Microsoft.Insights/components"
ACTION_GROUP = "Microsoft.Insights/actionGroups"

SENT_AS = {"FunctionAppLogs": "FunctionAppLogs", "CDBDataPlaneRequests5M": "DataPlaneRequests5M"}
"""The category of a diagnostic setting that fills a table; App… tables come from Application Insights."""

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
"""Aggregations and dimensions of metrics, from the supported metrics that Microsoft generates of its services.

https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-servicebus-namespaces-metrics
https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-documentdb-databaseaccounts-metrics
"""


class Alert(NamedTuple):
    """What an alert has to be: how bad, what is summed up how, and from where on."""

    severity: int
    measure: str
    aggregation: str
    operator: str
    threshold: int


ALERTS = {
    "lag": Alert(2, "LagSeconds", "Maximum", "GreaterThan", 300),
    "ttl-headroom": Alert(0, "HeadroomHours", "Minimum", "LessThan", 24),
    "quarantine": Alert(2, "Quarantined", "Total", "GreaterThan", 0),
    "failing": Alert(1, "Failures", "Total", "GreaterThan", 5),
    "undelivered": Alert(1, "Warnings", "Total", "GreaterThan", 10),
    "silent": Alert(1, "", "Count", "GreaterThan", 0),
    "quota": Alert(1, "Refusals", "Total", "GreaterThan", 0),
    "dead-letters": Alert(2, "DeadletteredMessages", "Maximum", "GreaterThan", 0),
    "backlog": Alert(3, "ActiveMessages", "Minimum", "GreaterThan", 1000),
    "connections": Alert(2, "ActiveConnections", "Total", "GreaterThan", 4000),
    "servicebus-throttling": Alert(3, "ThrottledRequests", "Total", "GreaterThan", 100),
    "cosmos-throttling": Alert(3, "TotalRequests", "Count", "GreaterThan", 100),
    "topic-size": Alert(1, "Size", "Maximum", "GreaterThan", 5120 * 16 * 10485 * 60),
}
SECTIONS = [*ALERTS, "stopped"]
"""Of the runbook, each with the name of an alert. The last one looks at the activity log."""

IN_PREVIEW = {"CDBDataPlaneRequests5M"}
"""Tables whose category is sent only where that is asked for: a query has to do without them."""


def queries(project: Project) -> dict[str, Query]:
    """Every query file."""
    files = sorted((project.infra / "queries").glob("*.kql"))
    return {file.name: Query(file.name, file.read_text(encoding="utf-8")) for file in files}


def rules(deployment: Deployment) -> dict[str, Resource]:
    """Every alert rule, by the name of its section in the runbook."""
    found = (*deployment.of(LOG_RULES), *deployment.of(METRIC_RULES))
    return {rule.name.removeprefix("relay-").rpartition("-")[0]: rule for rule in found}


def condition(rule: Resource) -> dict[str, Any]:
    """The only condition of a rule."""
    [only] = rule.at("properties.criteria.allOf")
    return dict(only)


@check
def every_query_is_well_formed_and_says_what_it_answers(project: Project) -> None:
    found = queries(project)
    assert len(found) >= 10
    for query in found.values():
        assert re.match(r"[A-Z][^?]+\? ", query.header), query.name


@check
def queries_ask_for_metrics_that_the_relay_has_and_in_their_kind(project: Project) -> None:
    kinds = instruments.instruments()
    asked = set()
    for query in queries(project).values():
        asked |= query.metrics
        assert query.metrics <= set(kinds), query.name
        assert ("AppMetrics" in query.tables) is bool(query.metrics), query.name
        chosen = re.findall(r'if\((\w+), Name == "([^"]+)"\)', query.text)
        chosen += [(column, name) for name, column in re.findall(r'iff\(Name == "([^"]+)", (\w+),', query.text)]
        for column, name in chosen:
            assert column == "Sum" or kinds[name] == "histogram", f"{query.name}: {column} of {name}"
        if len(query.metrics) == 1:
            [kind] = {kinds[name] for name in query.metrics}
            used = set(query.tokens) & {"Max", "Min", "ItemCount"}
            assert not used or kind == "histogram", f"{query.name}: {used} of a {kind}"
            # Of several instances' gauges the least counts: a sum of them says nothing.
            assert kind != "gauge" or "min(Sum)" in query.text, query.name
    assert asked == set(kinds), "an instrument that nobody looks at"


@check
def queries_ask_for_attributes_and_fields_that_the_relay_sets(project: Project) -> None:
    known = instruments.attributes((project.root / "docs/telemetry.md").read_text(encoding="utf-8"))
    assert set(known) == set(instruments.instruments())
    assert set().union(*known.values()) <= instruments.attribute_names()
    for query in queries(project).values():
        if query.tables == {"AppMetrics"}:
            for name in query.metrics:
                assert query.properties <= known[name], query.name
        else:
            assert query.properties <= instruments.log_fields(), query.name
        compared = r"Properties\.action\) (?:== |in )(\(?[^)|\n]*)"
        for text in re.findall(compared, query.text):
            assert set(re.findall(r'"(\w+)"', text)) <= instruments.log_actions(), query.name


@check
def every_table_that_is_asked_is_sent(project: Project) -> None:
    for deployment in project.both:
        sent = {
            source.get("category")
            for setting in deployment.of(DIAGNOSTICS)
            for source in setting.at("properties.logs")
        }
        assert deployment.one(COMPONENT).at("properties.WorkspaceResourceId") == deployment.one(WORKSPACE).id
        for query in queries(project).values():
            for table in query.tables & set(SENT_AS):
                if table in IN_PREVIEW and deployment is not project.production:
                    missing_is_fine = rf"union isfuzzy=true\s+\(datatable.*\n\s+\({table}\b"
                    assert re.search(missing_is_fine, query.text), f"{query.name}: {table}"
                    assert SENT_AS[table] not in sent
                else:
                    assert SENT_AS[table] in sent, f"{query.name}: {table}"


@check
def tables_are_those_of_a_workspace_that_can_be_queried(project: Project) -> None:
    for deployment in project.both:
        assert deployment.one(WORKSPACE).at("properties.sku.name") == "PerGB2018"
        component = deployment.one(COMPONENT)
        assert (component.at("kind"), component.at("properties.Application_Type")) == ("web", "web")
        for setting in deployment.of(DIAGNOSTICS):
            # Without it, Cosmos DB and Service Bus write into AzureDiagnostics, which no query here reads.
            if setting.scope in (deployment.one(COSMOS).id, deployment.one(SERVICE_BUS).id):
                assert setting.at("properties.logAnalyticsDestinationType") == "Dedicated"


@check
def every_trouble_of_the_list_has_its_alert(project: Project) -> None:
    found = rules(project.trial)
    assert set(found) == set(ALERTS)
    for name, rule in found.items():
        asked = condition(rule)
        measure = asked.get("metricName") or asked.get("metricMeasureColumn", "")
        assert (
            Alert(
                rule.at("properties.severity"),
                measure,
                asked["timeAggregation"],
                asked["operator"],
                asked["threshold"],
            )
            == ALERTS[name]
        ), name
        if rule.type == METRIC_RULES:
            assert asked["criterionType"] == "StaticThresholdCriterion"


@check
def every_alert_looks_at_the_right_place_and_tells_the_operators(project: Project) -> None:
    for deployment in project.both:
        group = deployment.one(ACTION_GROUP).id
        for name, rule in rules(deployment).items():
            assert rule.at("properties.enabled") is True, name
            if rule.type == LOG_RULES:
                assert rule.at("kind") == "LogAlert"
                assert rule.at("properties.scopes") == [deployment.one(WORKSPACE).id], name
                assert rule.at("properties.actions") == {"actionGroups": [group]}, name
                assert rule.at("properties.skipQueryValidation") is True, name
            else:
                owner = condition(rule)["metricNamespace"]
                assert rule.at("properties.scopes") == [deployment.one(owner).id], name
                assert rule.at("properties.actions") == [{"actionGroupId": group}], name


@check
def an_app_that_is_stopped_is_told_of(project: Project) -> None:
    for deployment in project.both:
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
def a_day_of_logs_is_bounded(project: Project) -> None:
    quotas = [
        deployment.one(WORKSPACE).at("properties.workspaceCapping.dailyQuotaGb")
        for deployment in (project.bare, *project.both, project.deploy(dailyLogQuotaInGigabytes=-1))
    ]
    assert quotas == [5, 5, 20, -1]


@check
def every_alert_is_looked_into_often_enough_and_over_a_window_that_exists(project: Project) -> None:
    minutes = {"PT1M": 1, "PT5M": 5, "PT15M": 15, "PT30M": 30}
    for name, rule in rules(project.trial).items():
        window, frequency = rule.at("properties.windowSize"), rule.at("properties.evaluationFrequency")
        assert minutes[frequency] <= minutes[window] <= 30, name
        assert minutes[frequency] <= 15, name
    # Its only aggregation is a sum over the minutes, which would count a connection once for each.
    assert rules(project.trial)["connections"].at("properties.windowSize") == "PT1M"
    # The query itself looks back as far.
    assert rules(project.trial)["silent"].at("properties.windowSize") == "PT30M"
    assert max(re.findall(r"ago\((\d+)m\)", queries(project)["silent.kql"].text), key=int) == "30"


@check
def an_alert_resolves_itself_where_the_trouble_can(project: Project) -> None:
    for name, rule in rules(project.trial).items():
        resolves = rule.at("properties.autoMitigate")
        assert resolves is (name not in ("quarantine", "quota")), name
        # Azure refuses the two together.
        assert (rule.at("properties.muteActionsDuration") is None) is resolves, name


@check
def an_alert_measures_and_splits_by_columns_that_its_query_yields(project: Project) -> None:
    texts = {query.text: query for query in queries(project).values()}
    for name, rule in rules(project.deploy(cosmosContainer="$(container)")).items():
        if rule.type == LOG_RULES:
            asked = condition(rule)
            query = texts[asked["query"]]
            split = [each["name"] for each in asked["dimensions"]]
            assert {*split, asked.get("metricMeasureColumn", "Sign")} <= query.columns, name
            assert all(each["values"] == ["*"] for each in asked["dimensions"]), name
            assert asked["failingPeriods"] == {"numberOfEvaluationPeriods": 1, "minFailingPeriodsToAlert": 1}
    split_by = {
        name: [each["name"] for each in condition(rule)["dimensions"]]
        for name, rule in rules(project.trial).items()
    }
    assert (split_by["quarantine"], split_by["failing"], split_by["silent"]) == (["Reason"], ["Error"], ["Sign"])


@check
def platform_metrics_and_their_dimensions_are_the_documented_ones(project: Project) -> None:
    for rule in project.trial.of(METRIC_RULES):
        asked = condition(rule)
        aggregations, dimensions = PLATFORM_METRICS[asked["metricNamespace"], asked["metricName"]]
        assert asked["timeAggregation"] in aggregations, rule.name
        assert {each["name"] for each in asked["dimensions"]} <= dimensions, rule.name
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
def the_topics_size_is_held_against_what_it_may_hold(project: Project) -> None:
    for deployment, partitions in ((project.trial, 16), (project.production, 1)):
        megabytes = deployment.one(TOPICS).at("properties.maxSizeInMegabytes") * partitions
        threshold = condition(rules(deployment)["topic-size"])["threshold"]
        assert 0.59 < threshold / (megabytes * 1024 * 1024) < 0.6


@check
def thresholds_can_be_changed_one_by_one_and_a_misspelt_one_is_refused(project: Project) -> None:
    changed = {
        "lagSeconds": ("lag", 60),
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
    with pytest.raises(DeploymentFailure, match="alertThresholds has an unknown name; the known ones are: activeMessages, "):
        project.deploy(alertThresholds={"lagSecond": 60}).of(LOG_RULES)


@check
def every_alert_has_its_section_in_the_runbook_and_gives_its_address(project: Project) -> None:
    text = (project.root / "docs/operations.md").read_text(encoding="utf-8")
    runbook = text[text.index("\n## Runbook") :]
    runbook = runbook[: runbook.index("\n## ", 1)]
    deployment = project.deploy(runbook="https://example.org/operations.md")
    found = {**rules(deployment), "stopped": deployment.one(ACTIVITY_RULES)}

    assert re.findall(r"^### ([\w-]+)$", runbook, re.MULTILINE) == SECTIONS
    assert set(found) == set(SECTIONS)
    for section in runbook.split("\n### ")[1:]:
        for part in ("**Meaning.**", "**First look.**", "**Remedy.**"):
            assert part in section, section.splitlines()[0]
        assert "```" in section, section.splitlines()[0]
    for name, rule in found.items():
        assert rule.at("properties.description").endswith(f" https://example.org/operations.md#{name}"), name


@check
def the_runbook_tells_the_thresholds_that_are_deployed(project: Project) -> None:
    text = (project.root / "docs/operations.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE))
    written = (project.infra / "modules/alerts.bicep").read_text(encoding="utf-8")
    defaults = written[written.index("var defaults = {") :]
    deployed = dict(re.findall(r"^  (\w+): (\d+)$", defaults[: defaults.index("\n}")], re.MULTILINE))

    assert told == deployed
    described = (project.infra / "main.bicep").read_text(encoding="utf-8")
    for name, value in deployed.items():
        assert f"{name} ({value})" in described
