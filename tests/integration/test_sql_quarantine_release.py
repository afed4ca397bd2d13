"""`quarantine add` and `quarantine release` on an SQL outbox: a real PostgreSQL, and the emulated broker."""

from __future__ import annotations

import pytest

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import Settings
from tests.support.broker import refuse, stop_refusing, topic_counts
from tests.support.operators import relay_command
from tests.support.sql_deployment import SqlDeployment, working


@pytest.fixture
def deployment(sql: SqlDeployment) -> SqlDeployment:
    sql.create()
    return sql


@pytest.fixture
def environment(deployment: SqlDeployment, servicebus: ServiceBusServer) -> dict[str, str]:
    return {
        "SQL": deployment.url,
        "SQL_CLAIM_S": "4",
        "SERVICEBUS": servicebus.connection_string,
        "RELAY_SENDERS": "2",
        "RELAY_ON_POISON": "block",
    }


async def test_a_blocking_event_is_set_aside_and_released_once_it_can_be_sent(
    deployment: SqlDeployment, servicebus: ServiceBusServer, environment: dict[str, str]
) -> None:
    await refuse(servicebus.admin_port, "bad", "amqp:not-allowed")
    deployment.named("before", "bad", "after")
    unknown = await relay_command(environment, "quarantine", "add", "k", "missing", "--yes", "--json")
    ordered = await relay_command(environment, "quarantine", "add", "k", "bad", "--yes", "--json")
    async with working(Settings.from_environment(environment)):
        await deployment.until_passed()
    listed = await relay_command(environment, "quarantine", "list", "--json")
    passed = await relay_command(environment, "quarantine", "add", "k", "after", "--yes", "--json")
    await stop_refusing(servicebus.admin_port)
    released = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (unknown.code, unknown.json["found"], unknown.json["ordered"]) == (1, False, False)
    assert (ordered.code, ordered.json["passed"], ordered.json["ordered"]) == (0, False, True)
    assert [(each["documentId"], each["reason"]) for each in listed.json["records"]] == [("bad", "set-aside")]
    assert passed.json["passed"] is True
    # A later event of its key went out before it.
    assert (released.code, len(released.json["released"])) == (0, 1)
    assert released.json["late"] == released.json["released"]
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 3


async def test_an_event_without_successors_is_not_late(
    deployment: SqlDeployment, servicebus: ServiceBusServer, environment: dict[str, str]
) -> None:
    deployment.named("before", "last")
    deployment.named("of another key", key="other")
    await relay_command(environment, "quarantine", "add", "k", "last", "--yes")
    async with working(Settings.from_environment(environment | {"RELAY_ON_POISON": "park"})):
        await deployment.until_passed()
    released = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (released.code, released.json["late"]) == (0, [])
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 3


async def test_where_both_outboxes_are_set_one_is_named(environment: dict[str, str]) -> None:
    both = environment | {"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=YQ==;"}

    unnamed = await relay_command(both, "quarantine", "list", "--json")
    named = await relay_command(both, "quarantine", "list", "--source", "sql", "--json")

    assert unnamed.code == 2
    assert "--source" in unnamed.json["error"]
    assert (named.code, named.json["records"]) == (0, [])
