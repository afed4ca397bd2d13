"""The checks of languages/java/src/cosmos: Microsoft's Cosmos DB client for Java against the emulator.

One process of Java runs them all, against one emulator; each is a test here. A Functions host reads one of the
containers too.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.host import Host
from packages.emulators.tests.integration.apps import Recorder, write_app
from packages.emulators.tests.languages import compiled
from packages.emulators.tests.languages.checks import Outcomes, run_command

NAMES = compiled.names(compiled.JAVA / "src" / "cosmos", ".java")
_FEWEST = 49

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weekly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("java-cosmos"),
]


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcomes of the checks, and the ids that a Functions host has read of a container of one of them."""

    outcomes: Outcomes
    read_by_host: set[str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    command = await asyncio.to_thread(compiled.java, "cosmos")
    names: dict[str, Any] = {
        "database_name": "java",
        "container_name": "shared",
        "lease_container_name": "shared-leases",
    }
    app = write_app(tmp_path_factory.mktemp("app"), **names)
    recorder = Recorder()
    async with (
        CosmosServer() as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("java")
        shared = await database.create_container("shared", PartitionKey("/pk"))
        await database.create_container("shared-leases", PartitionKey("/id"), default_ttl=-1)
        settings = {"COSMOS": server.connection_string}
        with pytest.MonkeyPatch.context() as patched:
            patched.setitem(sys.modules, "recorder", recorder)
            host = Host(app, settings, edges=Edges(None), lease_acquire_ms=100, lease_renew_ms=1_000)
            try:
                await host.start()
                outcomes = await run_command(
                    command, {**settings, "COSMOS_HTTP_CONNECTION_WITHOUT_TLS_ALLOWED": "true"}
                )
                written = {item["id"] async for item in shared.read_all_items()}
                await recorder.until(lambda: set(recorder.succeeded_ids()) >= written)
            finally:
                await host.stop()
    return Ran(outcomes, set(recorder.succeeded_ids()))


@pytest.fixture(scope="module")
def outcomes(ran: Ran) -> Outcomes:
    return ran.outcomes


@pytest.mark.parametrize("name", NAMES)
async def test_the_java_client_finds_that(outcomes: Outcomes, name: str) -> None:
    outcomes.assert_passed(name)


async def test_a_host_with_leases_next_to_those_of_java_gets_every_change(ran: Ran) -> None:
    assert ran.read_by_host == {f"{prefix}{number}" for prefix in ("i", "late") for number in range(20)} | {"last"}


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    outcomes.assert_complete(NAMES, _FEWEST)
