"""The services under test: the local emulators, started here, or those that the environment names.

tests/README.md explains how to run the tests against the official emulators or a subscription.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.cosmos.backend import CosmosBackend, CosmosRelay
from relay.config.settings import Settings
from tests.acceptance.services import Services, open_services
from tests.acceptance.target import Target, named_target

ENTITIES = Path(__file__).resolve().parents[2] / "infra" / "emulators" / "Config.json"

RelayMaker = Callable[[], CosmosRelay]


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    named = named_target(os.environ)
    if named is not None:
        yield named
        return
    async with _local_services() as local:
        yield local


@asynccontextmanager
async def _local_services() -> AsyncIterator[Target]:
    async with ServiceBusServer(Entities.from_file(ENTITIES)) as servicebus, CosmosServer() as cosmos:
        provision(cosmos.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield Target({"COSMOS": cosmos.connection_string, "SERVICEBUS": servicebus.connection_string}, "all")


@pytest.fixture
async def services(target: Target) -> AsyncIterator[Services]:
    # An event type of its own, so that another relay on the same containers does not publish the events.
    own = {"RELAY_EVENT_TYPE": f"acceptance-{uuid4()}", "RELAY_MESSAGE_FORMAT": "plain"}
    settings = Settings.from_environment({**target.environment, **own})
    async with open_services(settings, target.subscription) as opened:
        yield opened


@pytest.fixture
async def make_relay(services: Services) -> AsyncIterator[RelayMaker]:
    """Creates relays that share no state."""
    relays: list[CosmosRelay] = []

    def make() -> CosmosRelay:
        relays.append(CosmosBackend(services.settings).relay)
        return relays[-1]

    yield make
    for relay in relays:
        await relay.close()
