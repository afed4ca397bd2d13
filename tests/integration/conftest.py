"""The local stack's services in this process, on free ports, and a relay on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.servicebus.support import spare_idle_waits
from relay.backends.cosmos.backend import CosmosBackend, CosmosRelay
from relay.config.settings import Settings
from tests.support.leases import TriggerLeases
from tests.support.sql_deployment import SqlDeployment

ROOT = Path(__file__).resolve().parents[2]

RelayMaker = Callable[..., CosmosRelay]


@pytest.fixture
def entities() -> Entities:
    """The project's own queues and topics."""
    return Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")


@pytest.fixture
async def servicebus(entities: Entities) -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(entities) as server:
        yield server


@pytest.fixture
def sql(postgres_database: str) -> Iterator[SqlDeployment]:
    """A database for an SQL outbox; nothing is created in it yet."""
    made = SqlDeployment(postgres_database)
    yield made
    made.close()


@pytest.fixture
async def cosmos() -> AsyncIterator[CosmosServer]:
    async with CosmosServer() as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield server


@pytest.fixture
async def account(cosmos: CosmosServer) -> AsyncIterator[CosmosClient]:
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        yield client


@pytest.fixture
def container(account: CosmosClient) -> ContainerProxy:
    """The outbox."""
    return account.get_database_client(DATABASE).get_container_client("data")


@pytest.fixture
def quarantine(account: CosmosClient) -> ContainerProxy:
    return account.get_database_client(DATABASE).get_container_client("quarantine")


@pytest.fixture
def trigger(account: CosmosClient) -> TriggerLeases:
    return TriggerLeases(account)


@pytest.fixture
async def faults(cosmos: CosmosServer) -> AsyncIterator[FaultClient]:
    """Faults of the Cosmos DB account."""
    async with aiohttp.ClientSession() as session:
        yield FaultClient(session, cosmos.endpoint)


@pytest.fixture
def environment(cosmos: CosmosServer, servicebus: ServiceBusServer) -> dict[str, str]:
    """The settings of an outbox on the two services."""
    return {
        "COSMOS": cosmos.connection_string,
        "SERVICEBUS": servicebus.connection_string,
        "SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}",
    }


BOTH_SENDERS = pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "pool"])
"""For tests of what becomes of transfers: `make_relay` makes relays of either kind."""


@pytest.fixture
def pipelined() -> bool:
    """True if relays have the pipelined sender."""
    return True


@pytest.fixture
def quick_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool opens and closes links by the SDK, which takes half a second for each, and here no time."""
    spare_idle_waits(monkeypatch)


@pytest.fixture
async def make_relay(
    cosmos: CosmosServer, servicebus: ServiceBusServer, pipelined: bool, quick_sdk: None
) -> AsyncIterator[RelayMaker]:
    """Makes relays on the two services; `make_relay(RELAY_SENDERS="1")` changes a setting."""
    closers: list[Callable[[], Awaitable[None]]] = []

    def make(**settings: str) -> CosmosRelay:
        environment = {
            "COSMOS": cosmos.connection_string,
            "SERVICEBUS": servicebus.connection_string,
            # So long that no event of a test is old, however long the tests run.
            "RELAY_DUPLICATE_WINDOW_S": "604800",
            "RELAY_PIPELINED": str(pipelined),
        }
        relay = CosmosBackend(Settings.from_environment({**environment, **settings})).relay
        closers.append(relay.close)
        return relay

    yield make
    for close in closers:
        await close()
