"""A relay.toml and what is deployed for it: every stream finds its containers, its destination and its rights."""

from __future__ import annotations

import json
import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.parameters import TARGET, parameters, written
from outbox_relay.operator.console.resourcemanager import address_of
from relay.config.clients import Identity
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.times import parse_duration
from relay.routes.file import FILE, read
from tests.infra.checks.alerts import LOG_RULES, condition, rules
from tests.infra.checks.queries import queries
from tests.infra.checks.workbook import OF_ONE_STREAM, panels
from tests.infra.deployment import Deployment, DeploymentFailure, Resource
from tests.infra.kql import Query
from tests.infra.project import (
    CONTAINERS,
    COSMOS,
    LOCKS,
    ROLE_ASSIGNMENTS,
    ROOT,
    SERVICE_BUS,
    SITES,
    SUBSCRIPTIONS,
    TOPICS,
    WORKSPACE,
    Project,
    app_settings,
    azure_rights,
    check,
    relay_identity,
    worker_settings,
)

QUEUES = f"{SERVICE_BUS}/queues"
DESTINATIONS = """
[destinations.contacts]
topic = "contacts"
duplicate_window_s = 7200

[destinations.billing]
queue = "invoices"
connection = "BILLING"
"""
ON_COSMOS = f"""
[outboxes.default]
container = "data"

[outboxes.orders]
container = "orders"
database = "shop"
quarantine_container = "aside"
{DESTINATIONS}
[[routes]]
outbox = "default"
when.action = "ContactRenamed"
to = ["contacts", "default"]

[[routes]]
outbox = "orders"
to = ["billing", "contacts"]

[[routes]]
outbox = "default"
to = ["default"]
"""
ON_SQL = f"""
[outboxes.orders]
feed = "shop.event"
shards = 3
{DESTINATIONS}
[[routes]]
to = ["contacts", "billing"]
"""
STREAMS = ["contacts", "default", "orders-billing", "orders-contacts"]
BILLING = [{"connection": "BILLING", "name": "sbns-billing", "resourceGroup": "rg-billing", "sku": "Premium"}]
GIVEN: dict[str, Any] = {
    "otherNamespaces": BILLING,
    "queueReceivers": {"billing": ["accountant"]},
    "operatorPrincipalIds": ["operator"],
}
CONSOLE: dict[str, Any] = {
    "image": "ghcr.io/example/outbox-relay:1",
    "signInClientId": "22222222-2222-4222-8222-222222222222",
    "groupObjectIds": ["11111111-1111-4111-8111-111111111111"],
    "serviceBusName": "sbns-relay-x",
}
OF_A_TOPIC = [{"name": "all"}, {"name": "mail", "destination": "contacts"}]


def of_file(text: str, settings: dict[str, str] | None = None) -> tuple[dict[str, Any], list[Settings]]:
    """The parameters for a relay.toml, and its streams in an app that has these settings."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_text(text, encoding="utf-8")
        return parameters(read(path)), [] if settings is None else read_streams(settings, app=path.parent)


def on_cosmos(project: Project, **given: Any) -> Deployment:
    sample, _ = of_file(ON_COSMOS)
    values = {**GIVEN, "subscriptions": OF_A_TOPIC, "writerPrincipalIds": ["writer"], "lockContainers": True}
    return project.deploy(**values | sample | given)


def entity_of(deployment: Deployment, stream: Settings) -> Resource:
    """The topic or queue of a stream, in the namespace that its settings name."""
    namespace = (stream.servicebus.connection.address or "").removesuffix(".servicebus.windows.net")
    of_kind = deployment.of(QUEUES if stream.servicebus.is_queue else TOPICS)
    [entity] = [each for each in of_kind if each.name == f"{namespace}/{stream.servicebus.entity}"]
    return entity


def check_destination(deployment: Deployment, stream: Settings, principal: str) -> None:
    """Check that a destination keeps the guarantees, and that the relay may send to it, and operators own it."""
    entity = entity_of(deployment, stream)
    assert entity.at("properties.requiresDuplicateDetection") is True
    window = parse_duration(entity.at("properties.duplicateDetectionHistoryTimeWindow"))
    assert window == timedelta(seconds=stream.servicebus.duplicate_window_s), stream.stream
    if stream.servicebus.is_queue:
        assert entity.at("properties.requiresSession") is True
        assert ("Azure Service Bus Data Receiver", entity.id) in azure_rights(deployment, "accountant")
    assert ("Azure Service Bus Data Sender", entity.id) in azure_rights(deployment, principal)
    assert ("Azure Service Bus Data Owner", entity.id) in azure_rights(deployment, "operator")


@check
def the_loaded_parameters_are_those_of_the_relay_file(project: Project) -> None:
    loaded = (project.infra / TARGET.name).read_text(encoding="utf-8")
    assert loaded == written(ROOT / FILE), "run python -m infra.parameters"
    for file in sorted(project.infra.glob("*.bicepparam")):
        given = project.parameters(file.name)
        assert {name: given.get(name) for name in json.loads(loaded)} == json.loads(loaded), file.name


@check
def without_a_relay_file_the_templates_deploy_their_defaults(project: Project) -> None:
    for template in ("main.bicep", "sql.bicep"):
        assert {"destinations", "streams"} <= set(project.declared(template)), template
    nothing, _ = of_file("")
    assert project.deploy(**nothing).outputs == project.trial.outputs
    assert project.deploy(**nothing).resources == project.trial.resources
    assert project.bare.one(TOPICS).name.endswith("/domain-events")


@check
def every_stream_of_a_relay_file_has_its_containers_and_rights(project: Project) -> None:
    deployment = on_cosmos(project)
    _, streams = of_file(ON_COSMOS, app_settings(deployment))
    client, principal = relay_identity(deployment)
    granted = {
        (each.at("properties.principalId"), each.at("properties.scope"))
        for each in deployment.of(f"{COSMOS}/sqlRoleAssignments")
    }
    containers = {each.name.partition("/")[2]: each for each in deployment.of(CONTAINERS)}
    account = deployment.one(COSMOS).id

    assert sorted(stream.stream for stream in streams) == STREAMS
    for stream in streams:
        assert stream.cosmos is not None
        used = {
            "data": stream.in_cosmos.container,
            "lease": stream.in_cosmos.lease_container,
            "quarantine": stream.in_cosmos.quarantine_container,
        }
        for name in used.values():
            assert f"{stream.in_cosmos.database}/{name}" in containers, f"{stream.stream}: {name}"
            assert (principal, f"{account}/dbs/{stream.in_cosmos.database}/colls/{name}") in granted
        database = f"{account}/dbs/{stream.in_cosmos.database}"
        assert {(principal, database), ("operator", database), ("writer", database)} <= granted
        assert ("writer", f"{database}/colls/{used['data']}") in granted
        locked = {lock.scope for lock in deployment.of(LOCKS)}
        for kind in ("lease", "quarantine"):
            assert containers[f"{stream.in_cosmos.database}/{used[kind]}"].id in locked, used[kind]
        assert stream.servicebus.connection.identity == Identity(managed=True, client_id=client)
        check_destination(deployment, stream, principal)
    quarantines = {stream.in_cosmos.quarantine_container for stream in streams}
    assert quarantines == {"quarantine", "quarantine-contacts", "aside-orders-billing", "aside-orders-contacts"}
    assert len(containers) == 2 + 2 + len(quarantines), "what no stream uses"
    # What is deployed twice is the same resource for Azure, in two deployments that would be in each other's way.
    # The workspace is: its data collection rule, to which it is linked, needs it.
    assert deployment.repeated == {deployment.one(WORKSPACE).id}


@check
def every_sql_stream_of_a_relay_file_has_its_destination(project: Project) -> None:
    sample, _ = of_file(ON_SQL)
    deployment = project.deploy_sql(**GIVEN | sample, subscriptions=[{"name": "mail", "destination": "contacts"}])
    _, streams = of_file(ON_SQL, worker_settings(deployment))
    [sender] = [
        str(each.at("properties.principalId"))
        for each in deployment.of("Microsoft.Authorization/roleAssignments")
        if each.scope == deployment.one(TOPICS).id and each.at("properties.principalType") == "ServicePrincipal"
    ]

    assert [stream.stream for stream in streams] == ["orders-contacts", "orders-billing"]
    for stream in streams:
        assert stream.feed is not None
        assert (stream.feed.feed, stream.feed.shards) == ("shop.event", 3)
        check_destination(deployment, stream, sender)
    # Each stream reports its own: orders-contacts/0, orders-billing/0 and so on.
    assert 'toint("6")' in condition(rules(deployment)["unowned"])["query"]


@check
def an_operator_reaches_every_namespace(project: Project) -> None:
    deployment = on_cosmos(project)
    _, by_app = of_file(ON_COSMOS, app_settings(deployment))
    _, by_operator = of_file(ON_COSMOS, deployment.outputs["settings"])

    for theirs, own in zip(by_app, by_operator, strict=True):
        assert theirs.servicebus.connection.address == own.servicebus.connection.address
        assert own.stream == theirs.stream
        assert own.servicebus.duplicate_window_s == theirs.servicebus.duplicate_window_s


@check
def the_console_reads_every_stream_of_a_relay_file(project: Project) -> None:
    sample, _ = of_file(ON_COSMOS)
    given = {**CONSOLE, "cosmosAccountName": "cosmos-relay-x", "otherNamespaces": BILLING}
    deployment = project.deploy_template("console.bicep", **{**given, **sample})
    environment = worker_settings(deployment)
    _, streams = of_file(ON_COSMOS, environment)
    accounts = deployment.of(f"{COSMOS}/sqlRoleAssignments")
    [principal] = {str(each.at("properties.principalId")) for each in accounts}
    databases = {str(each.at("properties.scope")).rpartition("/")[2] for each in accounts}
    rights = azure_rights(deployment, principal)

    assert sorted(stream.stream for stream in streams) == STREAMS
    assert databases == {stream.in_cosmos.database for stream in streams} == {"outbox", "shop"}
    for stream in streams:
        address = address_of(stream, environment) or ""
        scope = address.removeprefix("https://management.azure.com")
        assert ("Azure Service Bus Data Receiver", scope) in rights, stream.stream
        namespace = (stream.servicebus.connection.address or "").removesuffix(".servicebus.windows.net")
        assert f"/namespaces/{namespace}/" in scope
        assert stream.servicebus.connection.identity is not None
        assert stream.servicebus.connection.identity.client_id
    assert len(rights) == 3, "domain-events, contacts, invoices"
    without = project.deploy_template("console.bicep", **{**given, **sample, "showSubscriptions": False})
    assert azure_rights(without, principal) == set()
    # Without parameters, those that the script wrote.
    loaded = project.deploy_template("console.bicep", **CONSOLE)
    assert [each.at("properties.principalId") for each in loaded.of(ROLE_ASSIGNMENTS)] == [principal]
    with pytest.raises(DeploymentFailure, match="otherNamespaces lacks the connection of billing"):
        project.deploy_template("console.bicep", **{**given, **sample, "otherNamespaces": []})


@check
def a_slash_in_an_entity_is_a_tilde_in_its_resource(project: Project) -> None:
    text = "[destinations.default]\ntopic = 'domain/events'\n\n[destinations.billing]\nqueue = 'billing/in'"
    sample, _ = of_file(f"{text}\n\n[[routes]]\nto = ['default', 'billing']")
    given: dict[str, Any] = {
        "operatorPrincipalIds": ["operator"],
        "subscriptions": [{"name": "all", "receiverPrincipalIds": ["c"]}],
    }
    for deployment in (project.deploy(**given, **sample), project.deploy_sql(**given, **sample)):
        namespace = deployment.one(SERVICE_BUS).id
        topic, queue = f"{namespace}/topics/domain~events", f"{namespace}/queues/billing~in"
        entities = {"domain/events", "domain~events", "billing/in", "billing~in"}

        assert [each.id for each in (*deployment.of(TOPICS), *deployment.of(QUEUES))] == [topic, queue]
        assert deployment.one(SUBSCRIPTIONS).id == f"{topic}/subscriptions/all"
        assert {scope for _, scope in azure_rights(deployment, "operator")} == {topic, queue}
        assert {scope for _, scope in azure_rights(deployment, "c")} == {f"{topic}/subscriptions/all"}
        # Whichever of the names the service reports in its metrics.
        [dimension] = condition(rules(deployment)["dead-letters"])["dimensions"]
        assert set(dimension["values"]) == entities
    console = project.deploy_template(
        "console.bicep", **CONSOLE, cosmosAccountName="cosmos-relay-x", serviceBusTopic="domain/events", **sample
    )
    environment = worker_settings(console)
    [principal] = {str(each.at("properties.principalId")) for each in console.of(ROLE_ASSIGNMENTS)}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_text(f"{text}\n\n[[routes]]\nto = ['default', 'billing']", encoding="utf-8")
        streams = read_streams(environment, app=Path(folder))
    addresses = {address_of(stream, environment) for stream in streams}
    scopes = {f"https://management.azure.com{scope}" for _, scope in azure_rights(console, principal)}
    assert {address.rpartition("/")[2] for address in scopes} == {"domain~events", "billing~in"}
    assert addresses == scopes
    assert environment["CONSOLE_TOPIC_URL"].endswith("/topics/domain~events")


@check
def subscriptions_and_receivers_belong_to_their_destination(project: Project) -> None:
    deployment = on_cosmos(project)
    named = {each.name.partition("/")[2] for each in deployment.of(SUBSCRIPTIONS)}

    assert named == {"domain-events/all", "contacts/mail"}
    # What would be ignored otherwise.
    for given, says in (
        ({"subscriptions": [{"name": "lost", "destination": "contact"}]}, "subscriptions: lost has no topic"),
        ({"subscriptions": [{"name": "lost", "destination": "billing"}]}, "Set destination to one of"),
        ({"queueReceivers": {"contacts": []}}, "queueReceivers: contacts is no queue. The queues are: billing"),
        ({"otherNamespaces": []}, "otherNamespaces lacks the connection of billing"),
    ):
        with pytest.raises(DeploymentFailure, match=re.escape(says)):
            on_cosmos(project, **given)


@check
def the_other_namespace_is_used_and_not_changed(project: Project) -> None:
    deployment = on_cosmos(project)
    [invoices] = deployment.of(QUEUES)

    assert [each.name.partition("-")[0] for each in deployment.of(SERVICE_BUS)] == ["sbns"]
    assert invoices.name == "sbns-billing/invoices"
    assert "/resourceGroups/rg-billing/" in invoices.id
    # That of its namespace, which is not the app's.
    assert invoices.at("properties.enablePartitioning") is False
    assert deployment.one(TOPICS, "contacts").at("properties.enablePartitioning") is True


@check
def each_namespace_has_a_private_endpoint(project: Project) -> None:
    private = {"privateNetworking": True, "serviceBusSku": "Premium"}
    deployment = on_cosmos(project, **private)
    targets = {
        connection["properties"]["privateLinkServiceId"].rpartition("/")[2]
        for endpoint in deployment.of("Microsoft.Network/privateEndpoints")
        for connection in endpoint.at("properties.privateLinkServiceConnections")
    }

    assert {deployment.one(SERVICE_BUS).name, "sbns-billing"} <= targets
    with pytest.raises(DeploymentFailure, match="needs sku Premium of otherNamespaces: sbns-billing"):
        on_cosmos(project, **private, otherNamespaces=[{**BILLING[0], "sku": "Standard"}])


@check
def the_function_of_every_stream_is_always_ready(project: Project) -> None:
    scale = on_cosmos(project).one(SITES).at("properties.functionAppConfig.scaleAndConcurrency")
    names = {each["name"] for each in scale["alwaysReady"]}

    assert names == {f"function:relay{name}" for name in ("", "_contacts", "_orders_billing", "_orders_contacts")}
    assert {each["instanceCount"] for each in scale["alwaysReady"]} == {1}


@check
def each_template_refuses_the_outboxes_of_the_other(project: Project) -> None:
    cosmos, _ = of_file(ON_COSMOS)
    sql, _ = of_file(ON_SQL)
    with pytest.raises(DeploymentFailure, match="has no outbox in Cosmos DB: deploy sql"):
        project.deploy(**GIVEN | sql, subscriptions=[])
    with pytest.raises(DeploymentFailure, match="which the worker does not read: default, contacts"):
        project.deploy_sql(**GIVEN | cosmos, subscriptions=[])


@check
def alerts_and_workbook_show_every_destination(project: Project) -> None:
    deployment = on_cosmos(project)
    found = rules(deployment)
    own, other = deployment.one(SERVICE_BUS), deployment.one(QUEUES).id.partition("/queues/")[0]

    for name in ("dead-letters", "backlog", "topic-size", "connections", "servicebus-throttling"):
        for suffix, scope, entities in (
            ("", own.id, {"domain-events", "contacts"}),
            ("-billing", other, {"invoices"}),
        ):
            rule = found[name + suffix]
            assert rule.at("properties.scopes") == [scope]
            # A dimension with several values makes an alert for each of them.
            named = [set(each["values"]) for each in condition(rule)["dimensions"]]
            assert named == ([] if name in ("connections", "servicebus-throttling") else [entities]), name
            assert f"#{name}" in rule.at("properties.description")
    # That of a partitioned topic, and of a queue on Premium.
    assert condition(found["topic-size"])["threshold"] == 16 * condition(found["topic-size-billing"])["threshold"]
    for item in panels(deployment, 10):
        content = item["content"]
        if content["filters"]:
            assert set(content["filters"][0]["values"]) == {"domain-events", "contacts", "invoices"}
            assert {metric.get("splitBy") for metric in content["metrics"]} == {"EntityName"}
            assert set(content["resourceIds"]) == {own.id, other}


@check
def alerts_and_workbook_show_every_stream(project: Project) -> None:
    deployment = on_cosmos(project)
    found = {name: rule for name, rule in rules(deployment).items() if rule.type == LOG_RULES}
    asked = {name: condition(rule) for name, rule in found.items()}
    split_by = {name: {each["name"] for each in each["dimensions"]} for name, each in asked.items()}
    silent = asked["silent"]["query"]
    pairs = re.findall(r'"([a-z-]+)", "([a-z]+)"', silent[: silent.index("]")])

    assert {name for name, columns in split_by.items() if "Stream" in columns} == {
        *("failing", "lag", "quarantine", "silent", "ttl-headroom")
    }
    assert split_by["failing"] == {"Error", "Stream"}
    for name, columns in split_by.items():
        assert columns <= Query(f"{name}.kql", asked[name]["query"]).columns, name
    assert sorted(pairs) == [
        *(("contacts", "data"), ("default", "data"), ("orders-billing", "orders"), ("orders-contacts", "orders"))
    ]
    shown = [item["content"]["query"] for item in panels(deployment, 3)]
    assert shown[0] == queries(project)["streams.kql"].text
    assert {each["query"] for each in asked.values()} <= set(shown)
    assert not [text for text in shown if text.endswith(OF_ONE_STREAM)]
    sample, _ = of_file(ON_SQL)
    both = project.deploy_sql(**GIVEN | sample, subscriptions=[{"name": "mail", "destination": "contacts"}])
    assert {"name": "Stream", "operator": "Include", "values": ["*"]} in condition(rules(both)["lag"])[
        "dimensions"
    ]


@check
def a_namespace_without_a_destination_has_no_alerts(project: Project) -> None:
    text = "[destinations.default]\nqueue = 'invoices'\nconnection = 'BILLING'"
    sample, _ = of_file(text)
    deployment = project.deploy(otherNamespaces=BILLING, subscriptions=[], **sample)

    assert deployment.of(TOPICS) == []
    assert {"dead-letters-billing", "topic-size-billing"} <= set(rules(deployment))
    assert "dead-letters" not in rules(deployment)
