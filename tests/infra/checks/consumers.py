"""The watching of consumers: the rules, the workbook and the queries of consumers.bicep, and its runbook."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from outbox_relay.inbox import telemetry
from tests.infra import instruments
from tests.infra.checks.alerts import LOG_RULES, Alert, check_sections, condition, deployed, rules
from tests.infra.checks.workbook import WORKBOOK, panels
from tests.infra.deployment import BicepError, Deployment
from tests.infra.kql import Query
from tests.infra.project import ACTION_GROUP, TOLD, Project, check

WORKSPACE_ID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.OperationalInsights/workspaces/w"
INSIGHTS_ID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Insights/components/i"
ALERTS = {
    "consumer-lag": Alert(2, "LagSeconds", "Maximum", "GreaterThan", 300),
    "consumer-failing": Alert(2, "Messages", "Total", "GreaterThan", 5),
}


def watching(project: Project, **parameters: Any) -> Deployment:
    required = {"workspaceId": WORKSPACE_ID, "applicationInsightsId": INSIGHTS_ID, **TOLD}
    return project.deploy_template("consumers.bicep", **required | parameters)


def consumer_queries(project: Project) -> dict[str, Query]:
    files = sorted((project.infra / "queries/consumers").glob("*.kql"))
    return {file.read_text(encoding="utf-8"): Query(file.name, file.read_text(encoding="utf-8")) for file in files}


@check
def both_alerts_on_consumers_are_deployed_and_notify(project: Project) -> None:
    deployment = watching(project, operatorEmails=["somebody@contoso.com"])
    found = rules(deployment)
    group = deployment.one(ACTION_GROUP)

    assert {name: deployed(rule) for name, rule in found.items()} == ALERTS
    assert [each["emailAddress"] for each in group.at("properties.emailReceivers")] == ["somebody@contoso.com"]
    assert len(group.at("properties.groupShortName")) <= 12
    for name, rule in found.items():
        assert rule.type == LOG_RULES
        assert rule.at("properties.enabled") is rule.at("properties.autoMitigate") is True, name
        assert rule.at("properties.skipQueryValidation") is True, name
        assert rule.at("properties.scopes") == [WORKSPACE_ID], name
        assert rule.at("properties.actions") == {"actionGroups": [group.id]}, name
        assert (rule.at("properties.windowSize"), rule.at("properties.evaluationFrequency")) == ("PT15M", "PT5M")
    with pytest.raises(BicepError, match="operatorEmails"):
        watching(project, operatorEmails=[])
    changed = rules(watching(project, lagSeconds=60, failures=0))
    assert [condition(changed[name])["threshold"] for name in ALERTS] == [60, 0]


@check
def alerts_on_consumers_use_columns_that_their_queries_return(project: Project) -> None:
    files = consumer_queries(project)
    for name, rule in rules(watching(project)).items():
        criterion = condition(rule)
        split = [each["name"] for each in criterion["dimensions"]]
        assert {*split, criterion["metricMeasureColumn"]} <= files[criterion["query"]].columns, name
        assert split[:2] == ["Topic", "Subscription"], name


@check
def queries_on_consumers_use_every_metric_that_inbox_reports(project: Project) -> None:
    page = (project.root / "docs/receiving-events.md").read_text(encoding="utf-8")
    kinds = instruments.instruments(telemetry.__file__)
    own = instruments.attributes(page, "inbox")
    used: set[str] = set()
    for query in consumer_queries(project).values():
        assert re.match(r"[A-Z][^?]+\? ", query.header), query.name
        assert query.tables == {"AppMetrics"}
        of_these = set().union(*(own[name] for name in query.metrics))
        assert query.properties == of_these | {"topic", "subscription"}, query.name
        if set(query.tokens) & {"Max", "Min", "ItemCount"}:
            assert {kinds[name] for name in query.metrics} == {"histogram"}, query.name
        used |= query.metrics
    assert used == set(kinds) == set(own)
    assert set().union(*own.values()) <= instruments.attribute_names(telemetry.__file__)


@check
def the_workbook_of_consumers_shows_every_query(project: Project) -> None:
    deployment = watching(project)
    shown = panels(deployment, 3)
    content = json.loads(deployment.one(WORKBOOK).at("properties.serializedData"))

    assert [item["content"]["query"] for item in shown] != []
    assert {item["content"]["query"] for item in shown} == set(consumer_queries(project))
    assert sum(int(item["customWidth"]) for item in shown) == 200
    assert len({item["name"] for item in content["items"]}) == len(content["items"])
    assert deployment.one(WORKBOOK).at("properties.sourceId") == INSIGHTS_ID
    for item in shown:
        assert item["content"]["crossComponentResources"] == [WORKSPACE_ID]
        assert item["content"]["timeContextFromParameter"] == "TimeRange"


@check
def every_alert_on_consumers_links_to_its_section_of_the_runbook(project: Project) -> None:
    check_sections(project, "Alerts on consumers", list(ALERTS))
    found = rules(watching(project, runbook="https://example.org/runbook.md"))

    for name, rule in found.items():
        assert rule.at("properties.description").endswith(f" https://example.org/runbook.md#{name}"), name
