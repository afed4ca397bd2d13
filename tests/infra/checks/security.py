"""Secrets, roles, monitoring, the parameter values that are rejected, and the network, private or public."""

from __future__ import annotations

import json
import re

import pytest

from tests.infra.deployment import BicepError, Deployment, DeploymentFailure
from tests.infra.project import (
    ACTION_GROUP,
    COMPONENT,
    COSMOS,
    DIAGNOSTICS,
    ROLE_ASSIGNMENTS,
    ROLES,
    SERVICE_BUS,
    SITES,
    STORAGE,
    WORKSPACE,
    Project,
    app_settings,
    azure_rights,
    check,
    check_each,
    relay_identity,
)

GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@check
def no_key_is_read(project: Project) -> None:
    for name, text in project.files.items():
        for word in ("listkeys", "listconnectionstrings", "listsecrets", "listaccountsas", ".list", "getsecret("):
            assert word not in text.lower(), f"{name} has {word}"


@check
def there_is_no_secret_parameter(project: Project) -> None:
    for name, text in project.files.items():
        assert "@secure" not in text, name
        for parameter in project.declared(name):
            secret = re.search(r"password|secret|(?<!partition)key", parameter, re.IGNORECASE)
            assert not secret, parameter


@check_each
def no_connection_string_with_a_key_is_deployed(deployment: Deployment) -> None:
    text = json.dumps([dict(resource.body) for resource in deployment.resources])
    assert not re.search(r"AccountKey=|SharedAccessKey|SharedAccessSignature|DefaultEndpointsProtocol", text)
    assert not {"COSMOS", "SERVICEBUS", "AzureWebJobsStorage"} & set(app_settings(deployment))


@check
def the_roles_are_the_documented_ones(project: Project) -> None:
    written = {guid for text in project.files.values() for guid in GUID.findall(text)}
    documented = (project.infra / "README.md").read_text(encoding="utf-8")
    rows = {name for row in re.findall(r"^\| ([^|]+) \|", documented, re.MULTILINE) for name in row.split(", ")}

    assert written == set(ROLES.values())
    assert set(ROLES) <= rows


@check_each
def the_relay_has_three_azure_roles_and_no_more(deployment: Deployment) -> None:
    _, principal = relay_identity(deployment)
    assert sorted(name for name, _ in azure_rights(deployment, principal)) == [
        "Azure Service Bus Data Sender",
        "Monitoring Metrics Publisher",
        "Storage Blob Data Owner",
    ]


@check
def every_azure_role_states_the_type_of_its_principal(project: Project) -> None:
    subscriptions = [{"name": "all", "receiverPrincipalIds": ["consumer"]}]
    deployment = project.deploy(subscriptions=subscriptions, operatorPrincipalIds=["operator"])
    kinds = {
        (each.at("properties.principalId"), each.at("properties.principalType"))
        for each in deployment.of(ROLE_ASSIGNMENTS)
    }
    _, relay = relay_identity(deployment)

    # Without it, a role for a new identity is rejected until the directory has replicated.
    assert kinds == {(relay, "ServicePrincipal"), ("consumer", "ServicePrincipal"), ("operator", "User")}


@check_each
def only_the_identity_may_publish_telemetry(deployment: Deployment) -> None:
    insights = deployment.one(COMPONENT)
    workspace = deployment.one(WORKSPACE)
    _, principal = relay_identity(deployment)
    assert insights.at("properties.DisableLocalAuth") is True
    assert insights.at("properties.WorkspaceResourceId") == workspace.id
    assert workspace.at("properties.features.disableLocalAuth") is True
    assert ("Monitoring Metrics Publisher", insights.id) in azure_rights(deployment, principal)


@check
def every_service_exports_its_logs_and_metrics(project: Project) -> None:
    for deployment in project.both:
        workspace = deployment.one(WORKSPACE)
        settings = deployment.of(DIAGNOSTICS)
        watched = {COSMOS, SERVICE_BUS, SITES, f"{STORAGE}/blobServices"}
        assert {setting.scope for setting in settings} == {deployment.one(kind).id for kind in watched}
        exported = {}
        for setting in settings:
            assert setting.at("properties.workspaceId") == workspace.id
            sources = setting.at("properties.logs") + (setting.at("properties.metrics") or [])
            assert all(source["enabled"] is True for source in sources)
            exported[setting.scope] = [source.get("category") or source["categoryGroup"] for source in sources]
        summaries = ["DataPlaneRequests5M"] if deployment is project.production else []
        assert exported == {
            deployment.one(COSMOS).id: [
                "ControlPlaneRequests",
                "PartitionKeyStatistics",
                *summaries,
                "AllMetrics",
            ],
            deployment.one(SERVICE_BUS).id: ["allLogs", "AllMetrics"],
            deployment.one(f"{STORAGE}/blobServices").id: ["StorageWrite", "StorageDelete"],
            deployment.one(SITES).id: ["FunctionAppLogs", "AllMetrics"],
        }


@check
def operators_are_notified_by_email(project: Project) -> None:
    group = project.deploy(operatorEmails=["ops@example.org"]).one(ACTION_GROUP)

    assert group.at("properties.enabled") is True
    assert [receiver["emailAddress"] for receiver in group.at("properties.emailReceivers")] == ["ops@example.org"]


@check
def whoever_runs_it_in_production_learns_of_alerts(project: Project) -> None:
    for file in ("main.production.bicepparam", "sql.production.bicepparam"):
        with pytest.raises(DeploymentFailure, match="operatorEmails is empty: nobody would learn of an alert"):
            project.deploy_file(file, operatorEmails=[])
        with pytest.raises(DeploymentFailure, match=r"docs/runbook\.md', to which no alert can link"):
            project.deploy_file(file, runbook="docs/runbook.md")
    with pytest.raises(DeploymentFailure, match="operatorEmails is empty"):
        project.deploy_template("main.bicep", environmentName="bare")


@check
def a_second_region_of_a_serverless_account_is_rejected_with_the_reason(project: Project) -> None:
    with pytest.raises(DeploymentFailure, match="needs cosmosCapacityMode Autoscale"):
        project.deploy(cosmosSecondaryLocation="northeurope")


@check
def values_that_azure_rejects_are_not_allowed(project: Project) -> None:
    for name, value in (
        ("serviceBusSku", "Basic"),
        ("serviceBusMessagingUnits", 3),
        ("cosmosCapacityMode", "Provisioned"),
        ("cosmosBackupTier", "Periodic"),
        ("instanceMemoryMB", 1024),
        ("maximumInstanceCount", 0),
        ("relayMessageFormat", "xml"),
        ("relayOnPoison", "ignore"),
        ("logRetentionInDays", 7),
        ("environmentName", ""),
    ):
        with pytest.raises(BicepError, match=name):
            project.deploy(**{name: value})


# Private networking, and public access without it


ENDPOINTS = "Microsoft.Network/privateEndpoints"
ZONES = "Microsoft.Network/privateDnsZones"
PUBLIC = (COSMOS, SERVICE_BUS, STORAGE, SITES)


@check
def a_trial_is_open_to_those_with_a_role_and_has_no_network(project: Project) -> None:
    for kind in PUBLIC:
        assert project.trial.one(kind).at("properties.publicNetworkAccess") == "Enabled", kind
    assert not [resource for resource in project.trial.resources if resource.type.startswith("Microsoft.Network/")]


@check
def private_networking_disables_public_access(project: Project) -> None:
    for kind in PUBLIC:
        assert project.production.one(kind).at("properties.publicNetworkAccess") == "Disabled", kind
    assert project.production.one(STORAGE).at("properties.networkAcls.defaultAction") == "Deny"
    assert project.production.one(COSMOS).at("properties.networkAclBypass") == "None"


@check
def private_networking_creates_an_endpoint_for_each_service(project: Project) -> None:
    deployment = project.production
    subnets = {
        each["name"] for each in deployment.one("Microsoft.Network/virtualNetworks").at("properties.subnets")
    }
    endpoints = {}
    for endpoint in deployment.of(ENDPOINTS):
        [connection] = endpoint.at("properties.privateLinkServiceConnections")
        endpoints[connection["properties"]["privateLinkServiceId"]] = (
            *connection["properties"]["groupIds"],
            zone_of(deployment, endpoint.name),
        )
        assert endpoint.at("properties.subnet.id").rpartition("/")[2] in subnets

    assert endpoints == {
        deployment.one(COSMOS).id: ("Sql", "privatelink.documents.azure.com"),
        deployment.one(SERVICE_BUS).id: ("namespace", "privatelink.servicebus.windows.net"),
        deployment.one(STORAGE).id: ("blob", "privatelink.blob.core.windows.net"),
        deployment.one(SITES).id: ("sites", "privatelink.azurewebsites.net"),
    }


def zone_of(deployment: Deployment, endpoint: str) -> str:
    """The DNS zone of a private endpoint, which must be linked to the network."""
    network = deployment.one("Microsoft.Network/virtualNetworks").id
    [group] = [
        each for each in deployment.of(f"{ENDPOINTS}/privateDnsZoneGroups") if each.name.startswith(endpoint)
    ]
    [config] = group.at("properties.privateDnsZoneConfigs")
    [zone] = [each for each in deployment.of(ZONES) if each.id == config["properties"]["privateDnsZoneId"]]
    links = [
        each for each in deployment.of(f"{ZONES}/virtualNetworkLinks") if each.name.startswith(zone.name + "/")
    ]
    assert [link.at("properties.virtualNetwork.id") for link in links] == [network]
    assert [link.at("properties.registrationEnabled") for link in links] == [False]
    assert {each.at("location") for each in (zone, *links)} == {"global"}
    return zone.name


@check
def a_private_app_uses_its_own_delegated_subnet(project: Project) -> None:
    network = project.production.one("Microsoft.Network/virtualNetworks")
    subnets = {subnet["name"]: subnet["properties"] for subnet in network.at("properties.subnets")}
    integration = subnets["snet-integration"]
    [delegation] = integration["delegations"]

    assert delegation["properties"]["serviceName"] == "Microsoft.App/environments"
    assert project.production.one(SITES).at("properties.virtualNetworkSubnetId") == (
        f"{network.id}/subnets/snet-integration"
    )
    assert [each["addressPrefix"] for each in subnets.values()] == ["10.90.0.0/26", "10.90.0.64/26"]
    assert "virtualNetworkSubnetId" not in project.trial.one(SITES).at("properties")


@check
def a_private_app_can_stay_open_for_deployment(project: Project) -> None:
    deployment = project.deploy(privateNetworking=True, serviceBusSku="Premium", functionAppPublicAccess=True)

    assert deployment.one(SITES).at("properties.publicNetworkAccess") == "Enabled"
    assert deployment.one(COSMOS).at("properties.publicNetworkAccess") == "Disabled"


@check
def private_networking_on_standard_is_rejected_with_the_reason(project: Project) -> None:
    with pytest.raises(DeploymentFailure, match="privateNetworking needs serviceBusSku Premium"):
        project.deploy(privateNetworking=True, serviceBusSku="Standard")
