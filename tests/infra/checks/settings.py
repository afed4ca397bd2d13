"""The settings of the function app, which the relay itself parses."""

from __future__ import annotations

import re
from typing import Any

from relay.config.settings import Settings
from relay.core.times import parse_duration
from tests.infra.deployment import Deployment
from tests.infra.project import TOPICS, Project, app_settings, check, check_each, relay_identity

HOST_SETTINGS = {
    "AzureWebJobsStorage__blobServiceUri",
    "AzureWebJobsStorage__credential",
    "AzureWebJobsStorage__clientId",
    "APPLICATIONINSIGHTS_CONNECTION_STRING",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    "PYTHON_ENABLE_OPENTELEMETRY",
    "PYTHON_AZURE_MONITOR_LOGGER_NAME",
    "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY",
    "PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME",
}
CONNECTION_STRINGS = {"COSMOS", "SERVICEBUS"}
ON_REQUEST = {
    *("RELAY_FILE", "RELAY_LARGE", "RELAY_BLOB_CONTAINER"),
    *("BLOBS", "BLOBS__serviceUri", "BLOBS__credential", "BLOBS__clientId"),
}
"""Settings that a deployment has only if they are asked for."""


def of_sql(names: set[str]) -> set[str]:
    """The settings of an outbox in SQL, which the function app of main.bicep does not have."""
    return {name for name in names if name == "SQL" or name.startswith("SQL_")}


class _Recorder(dict[str, str]):
    """An environment that records which names are read."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def known_settings(values: dict[str, str]) -> set[str]:
    """The names that `relay/config/settings.py` reads from the environment."""
    recorder = _Recorder(values)
    Settings.from_environment(recorder)
    return recorder.read


@check_each
def every_setting_of_the_relay_is_set_and_no_unknown_one(deployment: Deployment) -> None:
    settings = app_settings(deployment)
    known = known_settings(settings)

    assert set(settings) - HOST_SETTINGS == known - CONNECTION_STRINGS - ON_REQUEST - of_sql(known)
    assert set(settings) >= HOST_SETTINGS


@check
def the_app_reads_an_outbox_in_sql_on_request(project: Project) -> None:
    given = {"SQL": "postgresql://relay@x.postgres.database.azure.com/outbox", "SQL_SHARDS": "4"}
    deployment = project.deploy(sqlOutbox=given)
    client, _ = relay_identity(deployment)
    settings = Settings.from_environment(app_settings(deployment))

    assert settings.cosmos is not None
    assert settings.sql is not None
    assert (settings.sql.connection_string, settings.sql.shards) == (given["SQL"], 4)
    assert (settings.sql.identity.managed, settings.sql.identity.client_id) == (True, client)
    assert not of_sql(set(app_settings(project.trial)))


@check_each
def the_relay_understands_its_settings(deployment: Deployment) -> None:
    client, _ = relay_identity(deployment)
    settings = Settings.from_environment(app_settings(deployment))

    assert settings.cosmos is not None
    for connection in (settings.cosmos.connection, settings.servicebus.connection):
        assert connection.identity is not None
        assert (connection.identity.managed, connection.identity.client_id) == (True, client)
    account = settings.cosmos.connection.address or ""
    assert re.fullmatch(r"https://cosmos-relay-\w+\.documents\.azure\.com:443/", account)
    assert re.fullmatch(r"sbns-relay-\w+\.servicebus\.windows\.net", settings.servicebus.connection.address or "")


@check
def deployed_defaults_are_the_relays_own(project: Project) -> None:
    settings = app_settings(project.trial)
    # The window is the topic's, which is longer than the service's default.
    given = {name: settings[name] for name in settings if "__" in name or name == "RELAY_DUPLICATE_WINDOW_S"}

    assert Settings.from_environment(settings) == Settings.from_environment(given)


@check
def the_relays_duplicate_window_is_the_topics(project: Project) -> None:
    others = (project.deploy(duplicateDetectionWindow=window) for window in ("PT20S", "PT1H30M", "P7D"))
    for deployment in (project.bare, *project.both, *others):
        window = parse_duration(deployment.one(TOPICS).at("properties.duplicateDetectionHistoryTimeWindow"))
        settings = Settings.from_environment(app_settings(deployment))
        assert settings.servicebus.duplicate_window_s == window.total_seconds()


@check
def an_attempt_ends_before_the_host_would_end_it(project: Project) -> None:
    hours, minutes, seconds = (int(part) for part in project.json("host.json")["functionTimeout"].split(":"))
    for deployment in project.both:
        settings = Settings.from_environment(app_settings(deployment))
        send_s, attempt_s = settings.servicebus.send_timeout_s, settings.policy.attempt_timeout_s
        assert send_s < attempt_s < hours * 3600 + minutes * 60 + seconds


RELAY: dict[str, Any] = {
    "relayEventType": "fact",
    "relayMaxItems": 7,
    "relayPollDelayMs": 70,
    "relayPipelined": False,
    "relaySenders": 9,
    "relaySendTimeoutS": 11,
    "relayAttemptTimeoutS": 99,
    "relayOnPoison": "park",
    "relayMessageFormat": "cloudevents",
    "relayCloudEventsSource": "/contacts",
    "serviceBusTopic": "t",
}
"""Parameters of the relay on either source, none of them the default."""


def assert_relay(settings: Settings) -> None:
    """The settings are those of `RELAY`."""
    policy, servicebus = settings.policy, settings.servicebus
    assert (policy.event_type, policy.max_items, policy.poll_delay_ms) == ("fact", 7, 70)
    assert (policy.attempt_timeout_s, policy.on_poison, policy.cloudevents_source) == (99, "park", "/contacts")
    assert (servicebus.entity, servicebus.senders, servicebus.send_timeout_s) == ("t", 9, 11)


@check
def every_parameter_of_the_relay_reaches_its_setting(project: Project) -> None:
    deployment = project.deploy(
        **RELAY,
        cosmosDatabase="d",
        cosmosContainer="c",
        cosmosLeaseContainer="l",
        cosmosQuarantineContainer="q",
    )
    settings = Settings.from_environment(app_settings(deployment))

    assert_relay(settings)
    outbox = settings.in_cosmos
    names = (outbox.database, outbox.container, outbox.lease_container, outbox.quarantine_container)
    assert names == ("d", "c", "l", "q")


@check_each
def the_host_authenticates_with_the_identity(deployment: Deployment) -> None:
    settings, (client, _) = app_settings(deployment), relay_identity(deployment)
    assert settings["AzureWebJobsStorage__credential"] == "managedidentity"
    assert settings["AzureWebJobsStorage__clientId"] == client
    assert settings["AzureWebJobsStorage__blobServiceUri"].startswith("https://strelay")
    assert settings["APPLICATIONINSIGHTS_AUTHENTICATION_STRING"] == f"ClientId={client};Authorization=AAD"
    # Workers of two generations read one of them each.
    assert settings["PYTHON_ENABLE_OPENTELEMETRY"] == "true"
    assert settings["PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY"] == "true"


@check_each
def only_the_relays_logs_are_exported(deployment: Deployment) -> None:
    package = Settings.__module__.partition(".")[0]
    for name in ("PYTHON_AZURE_MONITOR_LOGGER_NAME", "PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME"):
        assert app_settings(deployment)[name] == package


@check
def the_page_on_telemetry_names_what_the_app_exports(project: Project) -> None:
    page = (project.root / "docs/telemetry.md").read_text(encoding="utf-8")
    for deployment in project.both:
        settings = app_settings(deployment)
        of_the_worker = {name: value for name, value in settings.items() if name.startswith("PYTHON_")}
        loggers = {value for name, value in of_the_worker.items() if name.endswith("LOGGER_NAME")}

        assert set(re.findall(r"`(PYTHON_\w+)`", page)) == set(of_the_worker)
        assert re.findall(r"deployed app exports the logger `(\w+)` alone", page) == [*loggers]
