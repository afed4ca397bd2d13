"""The checks of languages/java/src/cosmos: Microsoft's Cosmos DB client for Java against the emulator.

One process of Java runs them all, against one emulator; each is a test here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outbox_emulators.cosmos.server import CosmosServer
from packages.emulators.tests.languages import compiled
from packages.emulators.tests.languages.checks import Outcomes, run_command

NAMES = compiled.names(compiled.JAVA / "src" / "cosmos", ".java")
_FEWEST = 45

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weekly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("java-cosmos"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> AsyncIterator[Outcomes]:
    command = await asyncio.to_thread(compiled.java, "cosmos")
    async with CosmosServer() as server:
        settings = {"COSMOS": server.connection_string, "COSMOS_HTTP_CONNECTION_WITHOUT_TLS_ALLOWED": "true"}
        yield await run_command(command, settings)


@pytest.mark.parametrize("name", NAMES)
async def test_the_java_client_finds_that(outcomes: Outcomes, name: str) -> None:
    outcomes.assert_passed(name)


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    outcomes.assert_complete(NAMES, _FEWEST)
