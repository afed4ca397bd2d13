"""The app's worker process between a local stack and a local ingestion endpoint."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.infra.workspace import Rows
from tests.support.broker import set_topic_status
from tests.support.outbox import event, events
from tests.telemetry.ingestion import Ingestion
from tests.telemetry.nursery import ROOT, Nursery
from tests.telemetry.process import WorkerProcess, running_worker
from tests.telemetry.tables import rows_of

WorkerMaker = Callable[..., AbstractAsyncContextManager[WorkerProcess]]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with closing(Nursery()) as started:
        yield started


@pytest.fixture
async def ingestion() -> AsyncIterator[Ingestion]:
    async with Ingestion() as endpoint:
        yield endpoint


@pytest.fixture
async def servicebus() -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")) as server:
        yield server


@pytest.fixture
async def cosmos() -> AsyncIterator[CosmosServer]:
    async with CosmosServer() as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield server


@pytest.fixture
def worker(
    nursery: Nursery, cosmos: CosmosServer, servicebus: ServiceBusServer, ingestion: Ingestion, tmp_path: Path
) -> WorkerMaker:
    """Starts workers on the services; `worker(RELAY_SENDERS="1")` sets something in their environment."""

    def start(**environment: str) -> AbstractAsyncContextManager[WorkerProcess]:
        connections = {"COSMOS": cosmos.connection_string, "SERVICEBUS": servicebus.connection_string}
        return running_worker(nursery, tmp_path, connections, ingestion.connection_string, **environment)

    return start


@pytest.fixture
async def lived(worker: WorkerMaker, ingestion: Ingestion, servicebus: ServiceBusServer) -> Rows:
    """A worker that relayed 30 events of two actions, ignored 2 documents, set 1 aside, failed, and recovered."""
    committed = {"_ts": int(time.time()) - 10, "ttl": 7200}
    async with worker() as process:
        renamed = [document | committed for document in events("a", 20)]
        created = [document | committed for document in events("b", 10, action="ContactCreatedEvent")]
        others = [{"type": "contact"}, {"type": "contact"}, event("malformed", "c") | {"data": 7} | committed]
        await process.handle([*renamed, *created, *others], "i1")
        await set_topic_status(servicebus.admin_port, "SendDisabled")
        waiting = [document | committed for document in events("d", 4)]
        await process.handle(waiting, "i2")
        await process.ask(flush=True)
        await set_topic_status(servicebus.admin_port, "Active")
        await process.handle(waiting, "i2", 1)
        await process.ask(flush=True)
    return rows_of(ingestion.envelopes)
