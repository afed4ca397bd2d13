"""The workbook: it shows every query of the alerts, and platform metrics."""

from __future__ import annotations

import json
from typing import Any

from tests.infra.checks.alerts import LOG_RULES, PLATFORM_METRICS, condition
from tests.infra.checks.queries import queries, with_stream
from tests.infra.deployment import Deployment
from tests.infra.project import COMPONENT, COSMOS, SERVICE_BUS, WORKSPACE, Project, check, check_each

WORKBOOK = "Microsoft.Insights/workbooks"

OF_ONE_STREAM = "| project-away Stream\n"
"""The end of a panel's query where an app has one stream."""

AGGREGATIONS = {1: "Total", 3: "Maximum", 4: "Average", 7: "Count"}
"""Aggregations, as the workbook format numbers them."""


def panels(deployment: Deployment, kind: int) -> list[dict[str, Any]]:
    """The workbook's items of a type: 3 is a query, 10 are metrics."""
    content = json.loads(deployment.one(WORKBOOK).at("properties.serializedData"))
    assert content["version"] == "Notebook/1.0"
    return [item for item in content["items"] if item["type"] == kind]


@check
def alerts_and_workbook_use_every_query_file(project: Project) -> None:
    deployment = project.deploy(cosmosContainer="own")
    files = {with_stream(query, "own"): name for name, query in queries(project).items()}
    in_alerts = {condition(rule)["query"] for rule in deployment.of(LOG_RULES)}
    in_workbook = {item["content"]["query"].removesuffix(OF_ONE_STREAM) for item in panels(deployment, 3)}

    assert {files[query] for query in in_alerts | in_workbook} == set(files.values()) - {"streams.kql"}
    assert in_alerts <= in_workbook, "the workbook must show every query of an alert"
    assert len(in_alerts) == len(deployment.of(LOG_RULES))
    for query in in_alerts | in_workbook:
        assert "$(" not in query


@check
def the_first_row_shows_arrival_lag_and_failures(project: Project) -> None:
    deployment = project.deploy(cosmosContainer="$(container)")
    names = {with_stream(query): name for name, query in queries(project).items()}
    first = panels(deployment, 3)[:3]

    assert [names[item["content"]["query"].removesuffix(OF_ONE_STREAM)] for item in first] == [
        "arriving.kql",
        "lag.kql",
        "failing.kql",
    ]
    assert sum(int(item["customWidth"]) for item in first) == 100


@check_each
def the_rows_fill_the_page_and_query_the_workspace(deployment: Deployment) -> None:
    content = json.loads(deployment.one(WORKBOOK).at("properties.serializedData"))
    wide = [int(item["customWidth"]) for item in content["items"] if "customWidth" in item]
    filled = 0
    for width in wide:
        filled += width
        assert filled <= 100, "a row is wider than the page"
        filled %= 100
    assert (filled, sum(wide)) == (0, 600)
    assert len({item["name"] for item in content["items"]}) == len(content["items"])
    for item in panels(deployment, 3):
        assert item["content"]["crossComponentResources"] == [deployment.one(WORKSPACE).id]
        assert item["content"]["timeContextFromParameter"] == "TimeRange"
    [parameters] = panels(deployment, 9)
    assert [each["name"] for each in parameters["content"]["parameters"]] == ["TimeRange"]
    assert deployment.one(WORKBOOK).at("properties.sourceId") == deployment.one(COMPONENT).id


@check
def the_workbook_uses_platform_metrics_as_documented(project: Project) -> None:
    shown = set()
    for item in panels(project.trial, 10):
        content = item["content"]
        for metric in content["metrics"]:
            owner = next(kind for kind in (SERVICE_BUS, COSMOS) if kind.lower() == metric["namespace"])
            name = metric["metric"].rpartition("-")[2]
            category = "Requests" if owner == COSMOS else ""
            aggregations, dimensions = PLATFORM_METRICS[owner, name]
            assert metric["metric"] == f"{owner.lower()}-{category}-{name}"
            assert AGGREGATIONS[metric["aggregation"]] in aggregations, name
            assert {metric["splitBy"]} <= dimensions if "splitBy" in metric else True, name
            assert content["resourceIds"] == [project.trial.one(owner).id], name
            shown.add(name)
        assert all(each["values"] == ["domain-events"] for each in content["filters"])
    assert shown == {name for _, name in PLATFORM_METRICS} - {"ActiveConnections"}
