from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.errors import SettingsError
from relay.settings import Connection, Identity, Settings

ROOT = Path(__file__).resolve().parents[3]

COSMOS = "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=c2VjcmV0a2V5;"
SERVICEBUS = "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
LEAST = {"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS}


def problems_of(environment: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment(environment)
    return raised.value.problems


def test_two_connections_are_enough_and_the_rest_has_defaults() -> None:
    settings = Settings.from_environment(LEAST)

    assert settings.cosmos == Connection(connection_string=COSMOS)
    assert (settings.cosmos_database, settings.cosmos_container) == ("outbox", "data")
    assert (settings.cosmos_lease_container, settings.cosmos_quarantine_container) == ("leases", "quarantine")
    assert settings.servicebus_topic == "domain-events"
    assert settings.event_type == "domainEvent"
    assert settings.send_timeout_s == 30
    assert settings.cloudevents_source is None


def test_identities_are_taken_by_the_hosts_own_convention() -> None:
    settings = Settings.from_environment(
        {
            "COSMOS__accountEndpoint": "https://a.documents.azure.com:443/",
            "COSMOS__credential": "managedidentity",
            "COSMOS__clientId": "0000-1111",
            "SERVICEBUS__fullyQualifiedNamespace": "n.servicebus.windows.net",
        }
    )

    assert settings.cosmos.identity == Identity(managed=True, client_id="0000-1111")
    assert settings.servicebus.address == "n.servicebus.windows.net"
    assert settings.servicebus.identity == Identity(managed=False, client_id=None)


def test_one_error_names_every_setting_that_is_wrong() -> None:
    problems = problems_of(
        {
            "COSMOS": "nonsense",
            "SERVICEBUS__fullyQualifiedNamespace": "sb://n/",
            "SERVICEBUS__credential": "password",
            "COSMOS_CONTAINER": "leases",
            "RELAY_MAX_ITEMS": "0",
            "RELAY_POLL_DELAY_MS": "soon",
            "RELAY_SENDERS": "1000",
            "RELAY_SEND_TIMEOUT_S": "nan",
            "RELAY_MESSAGE_FORMAT": "xml",
            "RELAY_SENDER": "3",
        }
    )

    named = (
        "COSMOS is no connection string: it lacks AccountEndpoint and AccountKey",
        "SERVICEBUS__fullyQualifiedNamespace is 'sb://n/'",
        "SERVICEBUS__credential is 'password'",
        "COSMOS_CONTAINER, COSMOS_LEASE_CONTAINER, COSMOS_QUARANTINE_CONTAINER must name three different",
        "RELAY_MAX_ITEMS is '0'",
        "RELAY_POLL_DELAY_MS is 'soon'",
        "RELAY_SENDERS is '1000'",
        "RELAY_SEND_TIMEOUT_S is 'nan'",
        "RELAY_MESSAGE_FORMAT is 'xml'",
        "RELAY_SENDER is not a setting: did you mean RELAY_SENDERS?",
    )
    for words in named:
        assert [problem for problem in problems if problem.startswith(words)], words
    assert len(problems) == len(named)


def test_nothing_set_names_both_connections_and_their_alternatives() -> None:
    assert [problem.partition(" ")[0] for problem in problems_of({"COSMOS": "  "})] == ["COSMOS", "SERVICEBUS"]


def test_a_connection_string_and_an_address_together_are_refused() -> None:
    assert problems_of(LEAST | {"SERVICEBUS__fullyQualifiedNamespace": "n.servicebus.windows.net"}) == [
        "SERVICEBUS and SERVICEBUS__fullyQualifiedNamespace are both set: keep one of them"
    ]


def test_no_error_and_no_representation_tells_a_key() -> None:
    broken = {"COSMOS": COSMOS.replace("AccountKey", "Key"), "SERVICEBUS": SERVICEBUS}

    assert "c2VjcmV0" not in "".join(problems_of(broken))
    assert "c2VjcmV0" not in repr(Settings.from_environment(LEAST))


def test_cloudevents_need_a_source() -> None:
    assert "RELAY_CLOUDEVENTS_SOURCE" in problems_of(LEAST | {"RELAY_MESSAGE_FORMAT": "cloudevents"})[0]

    chosen = LEAST | {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}
    assert Settings.from_environment(chosen).cloudevents_source == "/contacts"


def test_a_foreign_name_that_only_shares_the_prefix_is_left_alone() -> None:
    Settings.from_environment(LEAST | {"RELAY_SERVICE_PORT_8080_TCP": "x", "COSMOS__preferredLocations": "y"})


def test_the_sample_settings_are_accepted() -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())

    Settings.from_environment(sample["Values"])
