"""The checks of languages/cosmos: Microsoft's Cosmos DB client for JavaScript against the emulator.

One process of Node runs them all, against one emulator; each is a test here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outbox_relay.emulators.cosmos.server import CosmosServer
from packages.emulators.tests.languages.checks import Outcomes, names, run, skip_without

NAMES = names("cosmos")
_FEWEST = 60

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("javascript-cosmos"),
    # The first test waits for all checks, on a machine that may be busy with others.
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> AsyncIterator[Outcomes]:
    skip_without("@azure/cosmos")
    async with CosmosServer() as server:
        yield await run("cosmos", {"COSMOS": server.connection_string})


@pytest.mark.parametrize("name", NAMES)
async def test_the_javascript_client_finds_that(outcomes: Outcomes, name: str) -> None:
    outcomes.assert_passed(name)


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    outcomes.assert_complete(NAMES, _FEWEST)
