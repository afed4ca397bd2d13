"""The console of console.bicep: who can open it, and what it may read."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_relay.operator.console.pages import ConsoleSettings
from outbox_relay.operator.console.resourcemanager import topic_address
from outbox_relay.operator.console.server import access_for, platform_authentication
from relay.config.settings import Settings
from tests.infra.deployment import BicepError, Deployment, DeploymentFailure
from tests.infra.project import (
    COSMOS,
    IDENTITIES,
    ROLE_ASSIGNMENTS,
    ROLES,
    WORKERS,
    Project,
    check,
    worker_settings,
)

GROUP = "11111111-1111-4111-8111-111111111111"
REQUIRED = {
    "image": "myregistry.azurecr.io/outbox-relay:1",
    "registryName": "myregistry",
    "signInClientId": "22222222-2222-4222-8222-222222222222",
    "groupObjectIds": [GROUP],
    "serviceBusName": "sbns-relay-x",
}


def on_cosmos(project: Project, **parameters: Any) -> Deployment:
    return project.deploy_template(
        "console.bicep", **{**REQUIRED, "cosmosAccountName": "cosmos-relay-x"} | parameters
    )


def on_sql(project: Project) -> Deployment:
    sql = {"SQL": "postgresql://id@x.postgres.database.azure.com/outbox", "CONSOLE_SHOW_DATA": "true"}
    return project.deploy_template("console.bicep", **{**REQUIRED, "settings": sql})


def topic_roles(deployment: Deployment) -> list[str]:
    names = {identifier: name for name, identifier in ROLES.items()}
    return [
        names[each.at("properties.roleDefinitionId").rpartition("/")[2]]
        for each in deployment.of(ROLE_ASSIGNMENTS)
        if str(each.scope).endswith("/namespaces/sbns-relay-x/topics/domain-events")
    ]


@check
def the_console_is_behind_the_authentication_of_the_platform(project: Project) -> None:
    deployment = on_cosmos(project)
    sign_in = deployment.one(f"{WORKERS}/authConfigs")
    assert sign_in.name == "ca-relay-console/current"
    assert sign_in.at("properties.platform.enabled") is True
    assert sign_in.at("properties.globalValidation.unauthenticatedClientAction") == "RedirectToLoginPage"
    assert sign_in.at("properties.globalValidation.redirectToProvider") == "azureactivedirectory"
    assert sign_in.at("properties.httpSettings.requireHttps") is True
    provider = sign_in.at("properties.identityProviders.azureActiveDirectory")
    assert provider["enabled"] is True
    assert provider["registration"]["clientId"] == REQUIRED["signInClientId"]
    assert provider["validation"]["allowedAudiences"] == [REQUIRED["signInClientId"]]
    assert provider["validation"]["defaultAuthorizationPolicy"] == {"allowedPrincipals": {"groups": [GROUP]}}
    with pytest.raises((BicepError, DeploymentFailure)):
        on_cosmos(project, groupObjectIds=[])


@check
def the_console_asks_for_who_is_signed_in(project: Project) -> None:
    app = on_cosmos(project).one(WORKERS)
    [container] = app.at("properties.template.containers")
    words = container["command"]
    ingress = app.at("properties.configuration.ingress")
    assert words[:4] == ["python", "-m", "relay", "console"]
    assert access_for(words[words.index("--host") + 1]) is platform_authentication
    assert int(words[words.index("--port") + 1]) == ingress["targetPort"]
    assert ingress["allowInsecure"] is False
    assert app.at("properties.template.scale.maxReplicas") == 1


@check
def the_console_has_an_identity_of_its_own_that_reads(project: Project) -> None:
    deployment = on_cosmos(project)
    account = deployment.one(f"{COSMOS}/sqlRoleAssignments")
    role = str(account.at("properties.roleDefinitionId")).rpartition("/")[2]
    principals = {each.at("properties.principalId") for each in deployment.of(ROLE_ASSIGNMENTS)}

    assert deployment.one(IDENTITIES).name == "id-ca-relay-console"
    assert role == ROLES["Cosmos DB Built-in Data Reader"]
    assert str(account.at("properties.scope")).endswith("/databaseAccounts/cosmos-relay-x/dbs/outbox")
    assert principals == {account.at("properties.principalId")}
    assert topic_roles(deployment) == ["Azure Service Bus Data Receiver"]
    assert topic_roles(on_cosmos(project, showSubscriptions=False)) == []
    assert not on_sql(project).of(f"{COSMOS}/sqlRoleAssignments")


@check
def the_console_understands_its_settings(project: Project) -> None:
    environment = worker_settings(on_cosmos(project))
    settings = Settings.from_environment(environment)
    for connection in (settings.in_cosmos.connection, settings.servicebus.connection):
        assert connection.identity is not None
        assert connection.identity.managed
        assert connection.identity.client_id
    assert ConsoleSettings.from_environment(environment) == ConsoleSettings()
    topic = topic_address(environment["CONSOLE_TOPIC_URL"])
    assert topic.startswith("https://management.azure.com/subscriptions/")
    assert topic.endswith(f"/namespaces/sbns-relay-x/topics/{settings.servicebus.entity}")

    environment = worker_settings(on_sql(project))
    settings = Settings.from_environment(environment)
    assert settings.cosmos is None
    assert settings.sql is not None
    assert settings.sql.identity.client_id
    assert ConsoleSettings.from_environment(environment).show_data


@check
def the_console_can_be_limited_to_some_addresses(project: Project) -> None:
    rules = (
        on_cosmos(project, allowedIpRanges=["203.0.113.0/24"])
        .one(WORKERS)
        .at("properties.configuration.ingress.ipSecurityRestrictions")
    )
    assert rules == [{"name": "allowed-203-0-113-0-24", "action": "Allow", "ipAddressRange": "203.0.113.0/24"}]
