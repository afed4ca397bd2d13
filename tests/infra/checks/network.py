"""Private networking, and public access without it."""

from __future__ import annotations

import pytest

from tests.infra.bicep.deployment import Deployment
from tests.infra.bicep.functions import DeploymentFailure
from tests.infra.project import COSMOS, SERVICE_BUS, SITES, STORAGE, Project, check

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
