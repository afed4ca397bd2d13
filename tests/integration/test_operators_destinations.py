"""Destinations that are another kind than the settings say, are missing, or are in another namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from relay.config.streams import read_streams
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from tests.support.operators import Run, relay_command
from tests.support.outbox import event, sound

CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [{"Name": "work", "Properties": {"RequiresSession": True}}],
                "Topics": [
                    {
                        "Name": "domain-events",
                        "Properties": {"RequiresDuplicateDetection": True},
                        "Subscriptions": [{"Name": "all", "Properties": {"RequiresSession": True}}],
                    }
                ],
            }
        ]
    }
}


@pytest.fixture
def entities() -> Entities:
    return Entities.from_document(CONFIG)


def with_destination(environment: dict[str, str], file: Path, destination: str) -> dict[str, str]:
    """The environment, with a relay.toml that sends every event there."""
    file.write_text(f"[destinations.m]\n{destination}\n[[routes]]\nto = ['m']\n")
    return environment | {"RELAY_FILE": str(file)}


async def commands(environment: dict[str, str]) -> list[Run]:
    return [
        await relay_command(environment, *words)
        for words in (("check", "--json"), ("deadletters", "list"), ("smoke", "--timeout", "PT1S"))
    ]


@pytest.mark.parametrize(
    ("destination", "remedy"),
    [
        ("topic = 'work'", "rite `queue` instead of `topic` in destinations.m.topic of relay.toml"),
        ("queue = 'domain-events'", "rite `topic` instead of `queue` in destinations.m.queue of relay.toml"),
        ("topic = 'domain-events/subscriptions/all'", "destinations.m.topic of relay.toml"),
        ("topic = 'nowhere'", "destinations.m.topic of relay.toml"),
        ("queue = 'nowhere'", "destinations.m.queue of relay.toml"),
    ],
)
@pytest.mark.slow
@pytest.mark.weekly
async def test_another_kind_of_destination_is_named_with_its_remedy(
    environment: dict[str, str], tmp_path: Path, destination: str, remedy: str
) -> None:
    check, *others = await commands(with_destination(environment, tmp_path / "relay.toml", destination))

    assert check.code in (1, 3)
    errors = [each for each in check.json["findings"] if each["level"] == "error"]
    assert any(remedy in (each["remedy"] or "") for each in errors), errors
    for run in others:
        assert run.code in (2, 3), run.out
        # A receiver is only told that there is none.
        assert remedy.rpartition(" in ")[2] in run.err


async def test_a_queue_for_the_topic_of_the_settings_is_named_with_its_remedy(environment: dict[str, str]) -> None:
    check, *others = await commands(environment | {"SERVICEBUS_TOPIC": "work"})

    assert "Set SERVICEBUS_TOPIC to the name of a topic" in check.out
    for run in others:
        assert run.code == 2
        assert "set SERVICEBUS_TOPIC to the name of a topic" in run.err


@pytest.mark.parametrize(
    ("destination", "remedy"),
    [
        ("topic = 'nowhere'", "Create the topic that destinations.m.topic of relay.toml names"),
        ("queue = 'nowhere'", "Create the queue that destinations.m.queue of relay.toml names"),
        ("topic = 'domain-events'\nconnection = 'ORDERS_BUS'", "Check ORDERS_BUS: the namespace refused"),
    ],
)
@pytest.mark.parametrize("pipelined", ["true", "false"])
async def test_the_remedy_of_an_event_names_the_setting_in_force(
    environment: dict[str, str], tmp_path: Path, destination: str, remedy: str, pipelined: str
) -> None:
    environment = with_destination(environment, tmp_path / "relay.toml", destination) | {
        "ORDERS_BUS": environment["SERVICEBUS"].replace("SharedAccessKey=", "SharedAccessKey=AAAA"),
        "RELAY_PIPELINED": pipelined,
    }
    [stream] = read_streams(environment)
    publisher = ServiceBusPublisher.from_settings(stream, messages.contract(None))
    try:
        [outcome] = await publisher.publish({"k": [sound(event("e", "k"))]})
    finally:
        await publisher.close()

    assert remedy in str(outcome.error)


@pytest.mark.parametrize("path", ["orders", "Domain-Events"])
async def test_the_path_of_another_entity_is_an_error_of_the_settings(
    environment: dict[str, str], cosmos: CosmosServer, path: str
) -> None:
    environment["SERVICEBUS"] += f"EntityPath={path}"

    for run in await commands(environment):
        assert run.code == 2
        assert (
            f"SERVICEBUS has the EntityPath '{path}', and SERVICEBUS_TOPIC is 'domain-events'" in run.out + run.err
        )


async def test_the_path_of_the_topic_itself_is_accepted(environment: dict[str, str]) -> None:
    environment["SERVICEBUS"] += "EntityPath=domain-events"

    run = await relay_command(environment, "deadletters", "list")

    assert run.code == 0


async def test_one_topic_behind_two_names_of_its_namespace_is_found(
    environment: dict[str, str], tmp_path: Path
) -> None:
    destination = "topic = 'domain-events'\nconnection = 'ORDERS_BUS'"
    environment = with_destination(environment, tmp_path / "relay.toml", destination) | {
        "ORDERS_BUS": environment["SERVICEBUS"].replace("127.0.0.1", "localhost"),
        "ORDERS_BUS_ADMIN": environment["SERVICEBUS_ADMIN"],
    }
    both = tmp_path / "relay.toml"
    both.write_text(both.read_text().replace("['m']", "['m', 'default']"))

    run = await relay_command(environment, "check", "--json")

    [found] = [each["what"] for each in run.json["findings"] if "two names of it" in each["what"]]
    assert found.startswith("the streams default and m send events of the outbox default to the topic")
    assert "SERVICEBUS and ORDERS_BUS" in found
