"""`python -m relay check` on an SQL outbox with a blocked or a parked key: named, and its commands help."""

from __future__ import annotations

import re

import pytest

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import Settings
from tests.support.operators import Run, relay_command, shell_words
from tests.support.sql_deployment import PATIENT, SqlDeployment, working

FINE = {"action": "Named"}


@pytest.fixture
def environment(sql: SqlDeployment, servicebus: ServiceBusServer) -> dict[str, str]:
    return {
        "SQL": sql.url,
        "SQL_CLAIM_S": "2",
        "SERVICEBUS": servicebus.connection_string,
        "SERVICEBUS_ADMIN": servicebus.admin_endpoint,
        "RELAY_DUPLICATE_WINDOW_S": "300",
        "RELAY_POLL_DELAY_MS": "50",
    }


async def check(environment: dict[str, str]) -> Run:
    return await relay_command(environment, "check", "--min-window", "PT5M", "--min-ttl", "PT1H")


def suggested(run: Run, about: str) -> list[list[str]]:
    """The words of the commands under the finding about something, as a shell takes them."""
    [(_, remedy)] = re.findall(rf"^error +(.*{about}.*)\n +-> (.*)$", run.out, re.MULTILINE)
    return [shell_words(each) for each in re.findall(r"python -m relay ([^;]+)", remedy)]


async def test_a_blocked_key_is_named_and_the_command_lets_the_relay_go_on(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    blocking = environment | {"RELAY_ON_POISON": "block"}
    sql.write(("b 1", "a key", "no object"), ("c", "a key", FINE))
    sql.read()

    run = await check(blocking)
    [command] = suggested(run, "partition key 'a key' is blocked by document 'b 1'")
    assert "data-not-object: data is a string, not an object" in run.out
    assert (await relay_command(blocking, *command, "--yes")).code == 0

    async with working(Settings.from_environment(blocking)):
        await sql.until_passed()
        checked = await check(blocking | PATIENT)
        assert checked.code == 0, checked.out


async def test_a_parked_key_is_named_and_the_commands_release_it(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    parking = environment | {"RELAY_ON_POISON": "park"}
    sql.write(("b 1", "a key", "no object"), ("c", "a key", FINE))
    async with working(Settings.from_environment(parking)):
        await sql.until_passed()

        run = await check(parking | PATIENT)
        codes = [
            (await relay_command(parking, *words, typed="yes\n")).code
            for words in suggested(run, "partition key 'a key' is parked since .* because of document 'b 1'")
        ]

        checked = await check(parking | PATIENT)
        assert (run.code, codes, checked.code) == (1, [0, 0], 0), checked.out
