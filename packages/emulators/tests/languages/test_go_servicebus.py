"""The checks of languages/go/servicebus: Microsoft's Service Bus client for Go against the emulator.

One process runs them all, against one emulator; each is a test here. Only redelivery is off: what a slow machine
completes late comes twice. To compile Go's own library takes half a minute of processor time where it was not
compiled before, so these tests are weekly.
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

NAMES = compiled.names(compiled.GO / "servicebus", ".go")
_FEWEST = 60

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weekly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("go-servicebus"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> AsyncIterator[Outcomes]:
    command = await asyncio.to_thread(compiled.go, "servicebus")
    async with ServiceBusServer(Entities(), tls=Tls(), websockets=True) as server:
        server.broker.edges.odds = replace(ODDS, redelivered=0)
        assert server.secured is not None
        assert server.secure_connection_strings is not None
        secure, https = server.secure_connection_strings
        settings = {
            "SERVICEBUS": server.connection_string,
            "SECURE": secure,
            "HTTPS": https,
            "ADMIN": server.admin_endpoint,
            "SSL_CERT_FILE": str(server.secured.ca_file),
        }
        yield await run_command(command, settings)


@pytest.mark.parametrize("name", NAMES)
async def test_the_go_client_finds_that(outcomes: Outcomes, name: str) -> None:
    outcomes.assert_passed(name)


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    outcomes.assert_complete(NAMES, _FEWEST)
