"""The checks of languages/java/src/servicebus: Microsoft's Service Bus client for Java against the emulator.

One process of Java runs them all, against one emulator; each is a test here. Only redelivery is off: what a slow
machine completes late comes twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from outbox_relay.emulators.servicebus.edges import ODDS
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.listeners import Tls
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.languages import compiled
from packages.emulators.tests.languages.checks import Outcomes, run_command

NAMES = compiled.names(compiled.JAVA / "src" / "servicebus", ".java")
_FEWEST = 75

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weekly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("java-servicebus"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outcomes]:
    java, *arguments = await asyncio.to_thread(compiled.java, "servicebus")
    async with ServiceBusServer(Entities(), tls=Tls(), websockets=True) as server:
        server.broker.edges.odds = replace(ODDS, redelivered=0)
        assert server.secured is not None
        assert server.secure_connection_strings is not None
        secure, https = server.secure_connection_strings
        trust = await asyncio.to_thread(
            compiled.trust_store, str(server.secured.ca_file), tmp_path_factory.mktemp("trust")
        )
        settings = {
            "SERVICEBUS": server.connection_string,
            "SECURE": secure,
            "HTTPS": https,
            "ADMIN": server.admin_endpoint,
        }
        yield await run_command([java, *trust, *arguments], settings)


@pytest.mark.parametrize("name", NAMES)
async def test_the_java_client_finds_that(outcomes: Outcomes, name: str) -> None:
    outcomes.assert_passed(name)


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    outcomes.assert_complete(NAMES, _FEWEST)
