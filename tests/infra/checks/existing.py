"""Existing resources that a deployment takes by name: it adds what they lack, and changes nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relay.config.settings import Settings
from tests.infra.deployment import Deployment, DeploymentFailure
from tests.infra.project import (
    AZURE_SQL,
    COMPONENT,
    CONTAINERS,
    COSMOS,
    DIAGNOSTICS,
    IDENTITIES,
    LOCKS,
    POSTGRES,
    RULES,
    SERVICE_BUS,
    SUBSCRIPTIONS,
    TOPICS,
    WORKSPACE,
    Project,
    app_settings,
    check,
    worker_settings,
)

ACCOUNT = {"existingCosmosAccount": "restored", "existingCosmosResourceGroup": "rg-data"}
NAMESPACE = {
    "existingServiceBusNamespace": "premium",
    "existingServiceBusResourceGroup": "rg-messaging",
    "serviceBusSku": "Premium",
}
WORKSPACE_OF_ALL = {"existingWorkspace": "log-all", "existingWorkspaceResourceGroup": "rg-logs"}
SERVER = {"existingDatabaseServer": "restored", "existingDatabaseResourceGroup": "rg-data"}


def group_of(identifier: str) -> str:
    """The resource group of a resource id."""
    return identifier.split("/resourceGroups/")[1].split("/")[0]


def outside(deployment: Deployment) -> dict[str, set[str]]:
    """The types of what is created in other groups than the deployment's, or on resources there."""
    found: dict[str, set[str]] = {}
    for each in deployment.resources:
        group = group_of(each.scope or each.id)
        if group != "rg-relay":
            found.setdefault(group, set()).add(each.type)
    return found


def monitored(deployment: Deployment) -> set[str]:
    """The names of the resources that have diagnostic settings."""
    return {str(each.scope).rpartition("/")[2] for each in deployment.of(DIAGNOSTICS)}


@check
def an_existing_account_is_used_and_not_changed(project: Project) -> None:
    deployment = project.deploy(**ACCOUNT, lockContainers=True, writerPrincipalIds=["writer"])

    assert deployment.of(COSMOS) == []
    assert outside(deployment) == {
        "rg-data": {
            f"{COSMOS}/sqlDatabases",
            CONTAINERS,
            f"{COSMOS}/sqlRoleDefinitions",
            f"{COSMOS}/sqlRoleAssignments",
            LOCKS,
        }
    }
    for each in deployment.of(f"{COSMOS}/sqlRoleAssignments"):
        assert each.id.split("/sqlRoleAssignments/")[0].endswith("/rg-data/providers/" + COSMOS + "/restored")
    assert "restored" not in monitored(deployment)
    settings = Settings.from_environment(app_settings(deployment))
    assert settings.in_cosmos.connection.address == "https://restored.documents.azure.com:443/"


@check
def an_existing_namespace_gets_the_topic_and_is_not_changed(project: Project) -> None:
    consumer = [{"name": "all", "receiverPrincipalIds": ["consumer"]}]
    for deployment, settings in (
        (main := project.deploy(**NAMESPACE, subscriptions=consumer), app_settings(main)),
        (sql := project.deploy_sql(**NAMESPACE, subscriptions=consumer), worker_settings(sql)),
    ):
        assert deployment.of(SERVICE_BUS) == []
        assert outside(deployment) == {
            "rg-messaging": {TOPICS, SUBSCRIPTIONS, RULES, "Microsoft.Authorization/roleAssignments"}
        }
        assert settings["SERVICEBUS__fullyQualifiedNamespace"] == "premium.servicebus.windows.net"
        assert "premium" not in monitored(deployment)
        topic = deployment.one(TOPICS)
        assert topic.name == "premium/domain-events"
        # The properties that depend on the tier, which is that of the namespace.
        assert topic.at("properties.enablePartitioning") is False


@check
def an_existing_namespace_is_private_only_on_premium(project: Project) -> None:
    with pytest.raises(DeploymentFailure, match="privateNetworking needs serviceBusSku Premium"):
        project.deploy(**{**NAMESPACE, "serviceBusSku": "Standard"}, privateNetworking=True)


@check
def an_existing_server_is_used_and_not_changed(project: Project) -> None:
    domains = {"PostgreSQL": "postgres.database.azure.com", "AzureSQL": "database.windows.net"}
    for engine, domain in domains.items():
        deployment = project.deploy_sql("sql.production.bicepparam", engine=engine, **SERVER)
        kinds = {each.type for each in deployment.resources}

        assert not [kind for kind in kinds if kind.startswith((POSTGRES, AZURE_SQL))]
        assert outside(deployment) == {}
        assert len(monitored(deployment)) == 2
        assert f"restored.{domain}" in worker_settings(deployment)["SQL"]
        assert f"restored.{domain}" in deployment.outputs["settings"]["SQL"]
        targets = {
            group_of(connection["properties"]["privateLinkServiceId"])
            for endpoint in deployment.of("Microsoft.Network/privateEndpoints")
            for connection in endpoint.at("properties.privateLinkServiceConnections")
        }
        assert targets == {"rg-data", "rg-relay"}


@check
def an_existing_workspace_is_used_and_not_changed(project: Project) -> None:
    for deployment in (project.deploy(**WORKSPACE_OF_ALL), project.deploy_sql(**WORKSPACE_OF_ALL)):
        component = deployment.one(COMPONENT)
        used = component.at("properties.WorkspaceResourceId")

        assert deployment.of(WORKSPACE) == []
        assert outside(deployment) == {}
        assert used.endswith("/rg-logs/providers/Microsoft.OperationalInsights/workspaces/log-all")
        assert {each.at("properties.workspaceId") for each in deployment.of(DIAGNOSTICS)} == {used}
        assert component.at("properties.DisableLocalAuth") is True


@check
def an_existing_application_insights_gets_the_role_and_is_not_changed(project: Project) -> None:
    given = {
        **WORKSPACE_OF_ALL,
        "existingApplicationInsights": "appi-all",
        "existingApplicationInsightsResourceGroup": "rg-logs",
    }
    for deployment in (project.deploy(**given), project.deploy_sql(**given)):
        assert deployment.of(COMPONENT) == []
        assert outside(deployment) == {"rg-logs": {"Microsoft.Authorization/roleAssignments"}}
    alone = {name: value for name, value in given.items() if name != "existingWorkspace"}
    for deploy_with in (project.deploy, project.deploy_sql):
        with pytest.raises(DeploymentFailure, match="existingApplicationInsights needs existingWorkspace"):
            deploy_with(**alone)


@check
def a_second_app_shares_leases_and_keeps_its_own_identity(project: Project) -> None:
    """Check that both deployments have what they share in one place, and other names for what differs."""
    shared: dict[str, Any] = {**ACCOUNT, **NAMESPACE, "lockContainers": True}
    one, two = (project.deploy(**shared, environmentName=name) for name in ("first", "second"))
    in_one, in_two = ({each.id: each for each in deployment.resources} for deployment in (one, two))

    assert one.one(IDENTITIES).id != two.one(IDENTITIES).id
    settings = (app_settings(one), app_settings(two))
    for name in ("COSMOS_LEASE_CONTAINER", "SERVICEBUS_TOPIC", "COSMOS__accountEndpoint"):
        assert settings[0][name] == settings[1][name]
    common = in_one.keys() & in_two.keys()
    assert {in_one[each].type for each in common} >= {CONTAINERS, TOPICS, f"{COSMOS}/sqlRoleDefinitions"}
    for each in common:
        assert in_one[each].body == in_two[each].body, each


@check
def the_documented_parameters_are_accepted(project: Project) -> None:
    text = (project.root / "docs/deployment.md").read_text(encoding="utf-8")
    found = re.findall(r"^### ([^\n]+)\n(?:(?!^#).)*?```bicep\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    uses = dict(found)

    assert list(uses) == ["From Standard to Premium", "A restored account", "A second app", "A second region"]
    for heading, block in uses.items():
        given = project.parameters_of(block)
        deployment = (
            project.deploy_template("main.bicep", **given)
            if block.startswith("using")
            else project.deploy_file("main.production.bicepparam", **given)
        )
        account, namespace = given.get("existingCosmosAccount"), given.get("existingServiceBusNamespace")
        assert account or namespace, heading
        assert (deployment.of(COSMOS) == []) is bool(account), heading
        assert (deployment.of(SERVICE_BUS) == []) is bool(namespace), heading


@check
def the_lease_container_has_its_own_throughput(project: Project) -> None:
    deployment = project.deploy(cosmosCapacityMode="Autoscale", cosmosLeaseMaxThroughput=3000)
    options = {
        each.name.rpartition("/")[2]: each.at("properties.options.autoscaleSettings.maxThroughput")
        for each in deployment.of(CONTAINERS)
    }

    assert options == {"data": 4000, "leases": 3000, "quarantine": 1000}


@check
def the_console_reads_what_is_in_other_groups(project: Project) -> None:
    deployment = project.deploy_template(
        "console.bicep",
        image="ghcr.io/example/outbox-relay:1",
        signInClientId="22222222-2222-4222-8222-222222222222",
        groupObjectIds=["11111111-1111-4111-8111-111111111111"],
        cosmosAccountName="restored",
        cosmosResourceGroup="rg-data",
        serviceBusName="premium",
        serviceBusResourceGroup="rg-messaging",
    )

    assert outside(deployment) == {
        "rg-data": {f"{COSMOS}/sqlRoleAssignments"},
        "rg-messaging": {"Microsoft.Authorization/roleAssignments"},
    }
    environment = worker_settings(deployment)
    assert environment["COSMOS__accountEndpoint"] == "https://restored.documents.azure.com:443/"
    assert "/rg-messaging/" in environment["CONSOLE_TOPIC_URL"].replace("/resourceGroups", "")
