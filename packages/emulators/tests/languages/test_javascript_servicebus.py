"""The checks of languages/servicebus: Microsoft's Service Bus client for JavaScript against the emulator.

One process of Node runs them all, against one emulator; each is a test here. The behaviour that varies is drawn
from the default seed, as users have it. Only redelivery is off: what a slow machine completes late comes twice.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from outbox_relay.emulators.servicebus.edges import ODDS
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.listeners import Tls
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.languages.checks import FOLDER, Outcomes, names, run, skip_without

NAMES = names("servicebus")
_FEWEST = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("javascript-servicebus"),
    # The first test waits for all checks, on a machine that may be busy with others.
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> AsyncIterator[Outcomes]:
    skip_without("@azure/service-bus", "ws")
    async with ServiceBusServer(Entities(), tls=Tls(), websockets=True) as server:
        server.broker.edges.odds = replace(ODDS, redelivered=0)
        assert server.secured is not None
        assert server.secure_connection_strings is not None
        secure, https = server.secure_connection_strings
        settings = {
            "SERVICEBUS": server.connection_string,
            "SECURE": secure,
            "HTTPS": https,
            "ADMIN": f"http://127.0.0.1:{server.admin_port}",
            "NODE_EXTRA_CA_CERTS": str(server.secured.ca_file),
        }
        yield await run("servicebus", settings)


@pytest.mark.parametrize("name", NAMES)
async def test_the_javascript_client_finds_that(outcomes: Outcomes, name: str) -> None:
    outcomes.assert_passed(name)


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    outcomes.assert_complete(NAMES, _FEWEST)
    package = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    assert package["dependencies"]["@azure/service-bus"] == "7.9.5"
