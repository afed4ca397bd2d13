"""The queries of alerts and workbook: they run, and use only what the relay reports and the deployment exports."""

from __future__ import annotations

import re

from tests.infra import instruments
from tests.infra.deployment import Deployment
from tests.infra.kql import Query
from tests.infra.project import COMPONENT, COSMOS, DIAGNOSTICS, SERVICE_BUS, WORKSPACE, Project, check, check_each

SENT_AS = {"FunctionAppLogs": "FunctionAppLogs", "CDBDataPlaneRequests5M": "DataPlaneRequests5M"}
"""The category of a diagnostic setting that fills a table. App… tables come from Application Insights."""

OF_EVERYTHING = {"stream"}
"""The properties of each metric and log record of a stream other than `default`: relay/telemetry/stream.py."""

IN_PREVIEW = {"CDBDataPlaneRequests5M"}
"""Tables whose category is exported only on request: queries must work without them."""


def queries(project: Project) -> dict[str, Query]:
    """Every query file."""
    files = sorted((project.infra / "queries").glob("*.kql"))
    return {file.name: Query(file.name, file.read_text(encoding="utf-8")) for file in files}


def with_stream(query: Query, container: str = "$(container)") -> str:
    """The text of a query in an alert of an app without relay.toml, whose container has this name."""
    return query.text.replace("$(stream)", "default").replace("$(container)", container)


@check
def every_query_runs_and_begins_with_its_question(project: Project) -> None:
    found = queries(project)
    assert len(found) >= 10
    for query in found.values():
        assert re.match(r"[A-Z][^?]+\? ", query.header), query.name


@check
def queries_use_every_metric_according_to_its_kind(project: Project) -> None:
    kinds = instruments.instruments()
    used: set[str] = set()
    for query in queries(project).values():
        used |= query.metrics
        assert query.metrics <= set(kinds), query.name
        assert ("AppMetrics" in query.tables) is bool(query.metrics), query.name
        chosen = re.findall(r'if\((\w+), Name == "([^"]+)"\)', query.text)
        chosen += [(column, name) for name, column in re.findall(r'iff\(Name == "([^"]+)", (\w+),', query.text)]
        for column, name in chosen:
            assert column == "Sum" or kinds[name] == "histogram", f"{query.name}: {column} of {name}"
        if len(query.metrics) == 1:
            [kind] = {kinds[name] for name in query.metrics}
            columns = set(query.tokens) & {"Max", "Min", "ItemCount"}
            assert not columns or kind == "histogram", f"{query.name}: {columns} of a {kind}"
            # Of the gauges of several instances the worst value counts.
            worst = "min(Sum)" if query.metrics == {"relay.ttl.headroom"} else "max(Sum)"
            assert kind != "gauge" or worst in query.text or "Sum" not in query.tokens, query.name
    assert used == set(kinds), "a metric that no query uses"


@check
def queries_use_attributes_and_log_fields_that_the_relay_sets(project: Project) -> None:
    known = instruments.attributes((project.root / "docs/telemetry.md").read_text(encoding="utf-8"))
    assert set(known) == set(instruments.instruments())
    assert set().union(*known.values()) <= instruments.attribute_names()
    for query in queries(project).values():
        if query.tables == {"AppMetrics"}:
            for name in query.metrics:
                assert query.properties - OF_EVERYTHING <= known[name], query.name
        else:
            fields = instruments.log_fields() | set().union(*(known[name] for name in query.metrics))
            assert query.properties - OF_EVERYTHING <= fields, query.name
        compared = r"Properties\.action\) (?:== |in )(\(?[^)|\n]*)"
        for text in re.findall(compared, query.text):
            assert set(re.findall(r'"(\w+)"', text)) <= instruments.log_actions(), query.name


@check
def every_queried_table_is_exported(project: Project) -> None:
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
                    tolerates_absence = rf"union isfuzzy=true\s+\(datatable.*\n\s+\({table}\b"
                    assert re.search(tolerates_absence, query.text), f"{query.name}: {table}"
                    assert SENT_AS[table] not in sent
                else:
                    assert SENT_AS[table] in sent, f"{query.name}: {table}"


@check_each
def the_workspace_has_the_tables_that_queries_use(deployment: Deployment) -> None:
    assert deployment.one(WORKSPACE).at("properties.sku.name") == "PerGB2018"
    component = deployment.one(COMPONENT)
    assert (component.at("kind"), component.at("properties.Application_Type")) == ("web", "web")
    for setting in deployment.of(DIAGNOSTICS):
        # Without it, Cosmos DB and Service Bus write into AzureDiagnostics, which no query here reads.
        if setting.scope in (deployment.one(COSMOS).id, deployment.one(SERVICE_BUS).id):
            assert setting.at("properties.logAnalyticsDestinationType") == "Dedicated"


@check
def the_daily_log_quota_is_limited(project: Project) -> None:
    quotas = [
        deployment.one(WORKSPACE).at("properties.workspaceCapping.dailyQuotaGb")
        for deployment in (project.bare, *project.both, project.deploy(dailyLogQuotaInGigabytes=-1))
    ]
    assert quotas == [5, 5, 20, -1]
