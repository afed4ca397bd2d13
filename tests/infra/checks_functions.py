"""What the function app must be: where it runs, how it is reached, and each of its settings."""

from __future__ import annotations

import re
from typing import Any

from relay.cli.times import parse_duration
from relay.settings import Settings
from tests.infra import tree
from tests.infra.project import (
    IDENTITIES,
    SITES,
    STORAGE,
    TOPICS,
    Project,
    app_settings,
    azure_rights,
    check,
    relay_identity,
)

HOST_SETTINGS = {
    "AzureWebJobsStorage__blobServiceUri",
    "AzureWebJobsStorage__credential",
    "AzureWebJobsStorage__clientId",
    "APPLICATIONINSIGHTS_CONNECTION_STRING",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY",
    "PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME",
}
CONNECTION_STRINGS = {"COSMOS", "SERVICEBUS"}


class _Recorder(dict[str, str]):
    """An environment that remembers what it was asked for."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def known_settings(values: dict[str, str]) -> set[str]:
    """The names that `relay/settings.py` asks an environment for, these values being right."""
    recorder = _Recorder(values)
    Settings.from_environment(recorder)
    return recorder.asked


@check
def the_app_runs_on_flex_consumption_with_python_3_13(project: Project) -> None:
    for deployment in project.both:
        plan, app = deployment.one("Microsoft.Web/serverfarms"), deployment.one(SITES)
        assert plan.at("sku") == {"name": "FC1", "tier": "FlexConsumption"}
        assert plan.at("properties.reserved") is True
        assert app.at("kind") == "functionapp,linux"
        assert app.at("properties.serverFarmId") == plan.id
        assert app.at("properties.functionAppConfig.runtime") == {"name": "python", "version": "3.13"}


@check
def the_app_has_its_own_identity_and_is_deployed_by_it(project: Project) -> None:
    for deployment in project.both:
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


@check
def the_app_speaks_https_only_and_takes_no_password(project: Project) -> None:
    for deployment in project.both:
        app = deployment.one(SITES)
        assert app.at("properties.httpsOnly") is True
        assert app.at("properties.siteConfig.minTlsVersion") == "1.2"
        assert app.at("properties.siteConfig.scmMinTlsVersion") == "1.2"
        assert app.at("properties.siteConfig.ftpsState") == "Disabled"
        for way in ("ftp", "scm"):
            policy = deployment.one(f"{SITES}/basicPublishingCredentialsPolicies", way)
            assert policy.at("properties.allow") is False, way


@check
def the_storage_account_takes_no_keys_and_shows_nothing_to_the_public(project: Project) -> None:
    for deployment in project.both:
        account = deployment.one(STORAGE)
        assert account.at("properties.allowSharedKeyAccess") is False
        assert account.at("properties.allowBlobPublicAccess") is False
        assert account.at("properties.allowCrossTenantReplication") is False
        assert account.at("properties.defaultToOAuthAuthentication") is True
        assert account.at("properties.networkAcls.bypass") == "None"
        assert account.at("properties.minimumTlsVersion") == "TLS1_2"
        assert account.at("properties.supportsHttpsTrafficOnly") is True
        assert deployment.one(f"{STORAGE}/blobServices/containers").at("properties.publicAccess") == "None"
        _, principal = relay_identity(deployment)
        assert ("Storage Blob Data Owner", account.id) in azure_rights(deployment, principal)


@check
def every_setting_of_the_relay_is_set_and_no_unknown_one(project: Project) -> None:
    for deployment in project.both:
        settings = app_settings(deployment)
        known = known_settings(settings)

        assert set(settings) - HOST_SETTINGS == known - CONNECTION_STRINGS
        assert set(settings) >= HOST_SETTINGS


@check
def the_relay_understands_its_settings(project: Project) -> None:
    for deployment in project.both:
        client, _ = relay_identity(deployment)
        settings = Settings.from_environment(app_settings(deployment))

        for connection in (settings.cosmos, settings.servicebus):
            assert connection.identity is not None
            assert (connection.identity.managed, connection.identity.client_id) == (True, client)
        assert re.fullmatch(r"https://cosmos-relay-\w+\.documents\.azure\.com:443/", settings.cosmos.address or "")
        assert re.fullmatch(r"sbns-relay-\w+\.servicebus\.windows\.net", settings.servicebus.address or "")


@check
def settings_left_alone_have_the_relays_own_defaults(project: Project) -> None:
    settings = app_settings(project.trial)
    # The window is the topic's, which is longer than the service's default.
    given = {name: settings[name] for name in settings if "__" in name or name == "RELAY_DUPLICATE_WINDOW_S"}

    assert Settings.from_environment(settings) == Settings.from_environment(given)


@check
def the_relay_is_told_the_duplicate_detection_window_of_the_topic(project: Project) -> None:
    others = (project.deploy(duplicateDetectionWindow=window) for window in ("PT20S", "PT1H30M", "P7D"))
    for deployment in (project.bare, *project.both, *others):
        window = parse_duration(deployment.one(TOPICS).at("properties.duplicateDetectionHistoryTimeWindow"))
        told = Settings.from_environment(app_settings(deployment)).duplicate_window_s
        assert told == window.total_seconds()


@check
def an_attempt_ends_before_the_host_would_end_it(project: Project) -> None:
    hours, minutes, seconds = (int(part) for part in project.json("host.json")["functionTimeout"].split(":"))
    for deployment in project.both:
        settings = Settings.from_environment(app_settings(deployment))
        assert settings.send_timeout_s < settings.attempt_timeout_s < hours * 3600 + minutes * 60 + seconds


@check
def every_parameter_of_the_relay_reaches_its_setting(project: Project) -> None:
    deployment = project.deploy(
        relayEventType="fact",
        relayMaxItems=7,
        relayPollDelayMs=70,
        relaySenders=9,
        relaySendTimeoutS=11,
        relayAttemptTimeoutS=99,
        relayOnPoison="park",
        relayMessageFormat="cloudevents",
        relayCloudEventsSource="/contacts",
        cosmosDatabase="d",
        cosmosContainer="c",
        cosmosLeaseContainer="l",
        cosmosQuarantineContainer="q",
        serviceBusTopic="t",
    )
    settings = Settings.from_environment(app_settings(deployment))

    assert (settings.event_type, settings.max_items, settings.poll_delay_ms) == ("fact", 7, 70)
    assert (settings.senders, settings.send_timeout_s, settings.cloudevents_source) == (9, 11, "/contacts")
    assert (settings.attempt_timeout_s, settings.on_poison) == (99, "park")
    assert (settings.cosmos_database, settings.cosmos_container) == ("d", "c")
    assert (settings.cosmos_lease_container, settings.cosmos_quarantine_container) == ("l", "q")
    assert settings.servicebus_topic == "t"


@check
def the_host_reaches_storage_and_telemetry_by_the_identity(project: Project) -> None:
    for deployment in project.both:
        settings, (client, _) = app_settings(deployment), relay_identity(deployment)
        assert settings["AzureWebJobsStorage__credential"] == "managedidentity"
        assert settings["AzureWebJobsStorage__clientId"] == client
        assert settings["AzureWebJobsStorage__blobServiceUri"].startswith("https://strelay")
        assert settings["APPLICATIONINSIGHTS_AUTHENTICATION_STRING"] == f"ClientId={client};Authorization=AAD"
        assert settings["PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY"] == "true"


@check
def the_logs_of_the_relay_alone_are_exported(project: Project) -> None:
    for deployment in project.both:
        package = Settings.__module__.partition(".")[0]
        assert app_settings(deployment)["PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME"] == package


@check
def the_bundle_holds_only_extensions_that_heed_the_date_setting(project: Project) -> None:
    # The Cosmos DB extension heeds dateParseHandling from 4.9.0 on (azure-webjobs-sdk-extensions pull 923); an
    # older one ignores it without a word, and "2019-01-01T00:00:01.0000000Z" becomes "2019-01-01T00:00:01Z".
    # Bundle 4.21 has extension 4.7, 4.23.1 has 4.9.0, 4.28 has 4.10.0. The upper bound keeps to one major version.
    host = project.json("host.json")
    bundle = host["extensionBundle"]
    bounds = re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+), 5\.0\.0\)", bundle["version"])

    assert bundle["id"] == "Microsoft.Azure.Functions.ExtensionBundle"
    assert bounds is not None, bundle["version"]
    assert tuple(int(number) for number in bounds.groups()) >= (4, 28, 0)
    # The only other value is Default; anything else ends the host.
    assert host["extensions"]["cosmosDB"] == {"serializerSettings": {"dateParseHandling": "None"}}


@check
def an_attempt_has_ten_minutes(project: Project) -> None:
    # A function that reaches it takes the worker with it, and all that the worker runs.
    assert project.json("host.json")["functionTimeout"] == "00:10:00"


@check
def instances_follow_their_parameters(project: Project) -> None:
    scale = "properties.functionAppConfig.scaleAndConcurrency"
    trial = project.trial.one(SITES).at(scale)
    production = project.production.one(SITES).at(scale)

    # A Python app with a Cosmos DB trigger does not always wake from zero: azure-functions-host issue 11308.
    one = [{"name": "function:relay", "instanceCount": 1}]
    assert trial == {"instanceMemoryMB": 2048, "maximumInstanceCount": 40, "alwaysReady": one}
    assert production["alwaysReady"] == [{"name": "function:relay", "instanceCount": 2}]
    assert project.deploy(alwaysReadyInstances=0).one(SITES).at(scale)["alwaysReady"] == []


@check
def instances_are_replaced_batch_by_batch_where_that_is_asked_for(project: Project) -> None:
    strategy = "properties.functionAppConfig.siteUpdateStrategy"
    for deployment in (project.bare, *project.both):
        assert "siteUpdateStrategy" not in deployment.one(SITES).at("properties.functionAppConfig"), "a preview"

    rolling = project.deploy(rollingUpdates=True).one(SITES)
    assert rolling.at(strategy) == {"type": "RollingUpdate"}
    assert rolling.at("properties.functionAppConfig.runtime.name") == "python"
    given = project.parameters("main.bicepparam", {"ROLLING_UPDATES": "true"})
    assert project.deploy(**given).one(SITES).at(strategy) == {"type": "RollingUpdate"}


@check
def the_app_waits_for_its_rights_and_its_endpoints(project: Project) -> None:
    app = project.declarations("main.bicep")["functionApp"].value
    assert isinstance(app, tree.ObjectOf)
    [waits] = [value for key, value in app.entries if key == tree.Constant("dependsOn")]
    assert isinstance(waits, tree.ArrayOf)
    wanted = ("cosmosAccess", "topicSubscriptions", "cosmosEndpoint", "serviceBusEndpoint", "storageEndpoint")
    assert set(waits.items) == {tree.Name(name) for name in wanted}


@check
def azd_finds_the_app_by_its_tag(project: Project) -> None:
    described = project.yaml("azure.yaml")
    [(name, service)] = described["services"].items()

    assert service == {"project": ".", "language": "python", "host": "function"}
    assert described["infra"] == {"provider": "bicep", "path": "infra", "module": "main"}
    assert project.trial.one(SITES).at("tags")["azd-service-name"] == name
