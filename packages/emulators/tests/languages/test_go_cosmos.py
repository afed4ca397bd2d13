"""The checks of languages/go/cosmos: Microsoft's Cosmos DB client for Go against the emulator.

One process runs them all, against one emulator; each is a test here. As those of Service Bus, they are weekly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outbox_relay.emulators.cosmos.server import CosmosServer
from packages.emulators.tests.languages import compiled
from packages.emulators.tests.languages.checks import Outcomes, run_command

NAMES = compiled.names(compiled.GO / "cosmos", ".go")
_FEWEST = 25

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weekly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("go-cosmos"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> AsyncIterator[Outcomes]:
    command = await asyncio.to_thread(compiled.go, "cosmos")
    async with CosmosServer() as server:
        yield await run_command(command, {"COSMOS": server.connection_string})


@pytest.mark.parametrize("name", NAMES)
async def test_the_go_client_finds_that(outcomes: Outcomes, name: str) -> None:
    outcomes.assert_passed(name)


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    outcomes.assert_complete(NAMES, _FEWEST)
