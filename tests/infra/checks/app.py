"""The function app: plan, identity, transport, scale and host.json."""

from __future__ import annotations

import re

from tests.infra.deployment import Deployment
from tests.infra.project import (
    IDENTITIES,
    SITES,
    STORAGE,
    Project,
    azure_rights,
    check,
    check_each,
    check_properties,
    relay_identity,
)

OF_SITES = {
    "httpsOnly": True,
    "siteConfig.minTlsVersion": "1.2",
    "siteConfig.scmMinTlsVersion": "1.2",
    "siteConfig.ftpsState": "Disabled",
}
OF_STORAGE = {
    "allowSharedKeyAccess": False,
    "allowBlobPublicAccess": False,
    "allowCrossTenantReplication": False,
    "networkAcls.bypass": "None",
    "minimumTlsVersion": "TLS1_2",
    "supportsHttpsTrafficOnly": True,
}


@check_each
def the_app_runs_on_flex_consumption_with_python_3_13(deployment: Deployment) -> None:
    plan, app = deployment.one("Microsoft.Web/serverfarms"), deployment.one(SITES)
    assert plan.at("sku") == {"name": "FC1", "tier": "FlexConsumption"}
    assert plan.at("properties.reserved") is True
    assert app.at("kind") == "functionapp,linux"
    assert app.at("properties.serverFarmId") == plan.id
    assert app.at("properties.functionAppConfig.runtime") == {"name": "python", "version": "3.13"}


@check_each
def the_app_has_its_own_identity_which_reads_the_package(deployment: Deployment) -> None:
    app, identity = deployment.one(SITES), deployment.one(IDENTITIES)
    storage = app.at("properties.functionAppConfig.deployment.storage")
    package = deployment.one(f"{STORAGE}/blobServices/containers")
    account, _, container = package.name.split("/")
    assert app.at("identity") == {"type": "UserAssigned", "userAssignedIdentities": {identity.id: {}}}
    assert storage["type"] == "blobContainer"
    assert storage["authentication"] == {
        "type": "UserAssignedIdentity",
        "userAssignedIdentityResourceId": identity.id,
    }
    assert storage["value"] == f"https://{account}.blob.core.windows.net/{container}"


@check_each
def the_app_requires_https_and_has_no_basic_authentication(deployment: Deployment) -> None:
    check_properties(deployment.of(SITES), OF_SITES)
    for way in ("ftp", "scm"):
        policy = deployment.one(f"{SITES}/basicPublishingCredentialsPolicies", way)
        assert policy.at("properties.allow") is False, way


@check_each
def the_storage_account_has_no_keys_and_no_public_blobs(deployment: Deployment) -> None:
    account = deployment.one(STORAGE)
    check_properties([account], {**OF_STORAGE, "defaultToOAuthAuthentication": True})
    assert deployment.one(f"{STORAGE}/blobServices/containers").at("properties.publicAccess") == "None"
    _, principal = relay_identity(deployment)
    assert ("Storage Blob Data Owner", account.id) in azure_rights(deployment, principal)


@check
def every_extension_of_the_bundle_supports_the_date_setting(project: Project) -> None:
    # The Cosmos DB extension supports dateParseHandling from 4.9.0 (azure-webjobs-sdk-extensions pull 923); older
    # versions ignore it silently, and "2019-01-01T00:00:01.0000000Z" becomes "2019-01-01T00:00:01Z".
    # Bundle 4.21 has extension 4.7, 4.23.1 has 4.9.0, 4.28 has 4.10.0. The upper bound fixes the major version.
    host = project.json("host.json")
    bundle = host["extensionBundle"]
    bounds = re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+), 5\.0\.0\)", bundle["version"])

    assert bundle["id"] == "Microsoft.Azure.Functions.ExtensionBundle"
    assert bounds is not None, bundle["version"]
    assert tuple(int(number) for number in bounds.groups()) >= (4, 28, 0)
    # The only other value is Default; the host does not start with anything else.
    assert host["extensions"]["cosmosDB"] == {"serializerSettings": {"dateParseHandling": "None"}}


@check
def an_attempt_has_ten_minutes(project: Project) -> None:
    # At the timeout the host kills the worker with everything it runs.
    assert project.json("host.json")["functionTimeout"] == "00:10:00"


@check
def instances_follow_their_parameters(project: Project) -> None:
    scale = "properties.functionAppConfig.scaleAndConcurrency"
    trial = project.trial.one(SITES).at(scale)
    production = project.production.one(SITES).at(scale)

    # A Python app with a Cosmos DB trigger does not always scale from zero: azure-functions-host issue 11308.
    one = [{"name": "function:relay", "instanceCount": 1}]
    assert trial == {"instanceMemoryMB": 2048, "maximumInstanceCount": 40, "alwaysReady": one}
    assert production["alwaysReady"] == [{"name": "function:relay", "instanceCount": 2}]
    assert project.deploy(alwaysReadyInstances=0).one(SITES).at(scale)["alwaysReady"] == []


@check
def rolling_updates_are_opt_in(project: Project) -> None:
    strategy = "properties.functionAppConfig.siteUpdateStrategy"
    for deployment in (project.bare, *project.both):
        assert "siteUpdateStrategy" not in deployment.one(SITES).at("properties.functionAppConfig"), "a preview"

    rolling = project.deploy(rollingUpdates=True).one(SITES)
    assert rolling.at(strategy) == {"type": "RollingUpdate"}
    assert rolling.at("properties.functionAppConfig.runtime.name") == "python"
    given = project.parameters("main.bicepparam", {"ROLLING_UPDATES": "true"})
    assert project.deploy(**given).one(SITES).at(strategy) == {"type": "RollingUpdate"}


@check
def the_app_is_deployed_after_its_roles_and_endpoints(project: Project) -> None:
    [waits] = re.findall(
        r"^  dependsOn: \[\n(.*?)^  \]", project.body("main.bicep", "functionApp"), re.DOTALL | re.MULTILINE
    )
    # It waits for the topic, the account and the storage, too: it has their outputs.
    assert waits.split() == ["cosmosAccess", "endpoints", "otherEndpoints"]


@check
def azd_finds_the_app_by_its_tag(project: Project) -> None:
    described = project.yaml("azure.yaml")
    [(name, service)] = described["services"].items()

    assert service == {"project": ".", "language": "python", "host": "function"}
    assert described["infra"] == {"provider": "bicep", "path": "infra", "module": "main"}
    assert project.trial.one(SITES).at("tags")["azd-service-name"] == name
