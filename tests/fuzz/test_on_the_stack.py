"""The same documents over the wire: through the real SDKs onto the local Service Bus and Cosmos DB."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient
from hypothesis import given

from local.stack.environment import DATABASE, TOPIC
from local.stack.parts import ROOT
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.backends.cosmos.source import ChangeBatch
from relay.config.clients import servicebus_client
from relay.config.settings import Settings
from relay.core.evidence import AcceptedLedger
from relay.core.pipeline import Relay
from relay.core.results import Outcome
from relay.quarantine.quarantine import StoredQuarantine
from relay.quarantine.record import RECORD_TYPE
from relay.servicebus import messages
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from tests.fuzz import oracle
from tests.fuzz.budget import DOCUMENTS, count, trying
from tests.fuzz.documents import batches
from tests.fuzz.judging import judge
from tests.fuzz.service import NeverCheckpointed
from tests.support.watchdog import WATCHDOG_S

# As after five attempts: what is refused needs no further evidence.
LASTING = 5


class Services:
    """Both services and one pool of senders, kept from example to example; what they hold is not."""

    def __init__(self) -> None:
        # Unpartitioned, the topic would take one id of two keys for a duplicate: that is said in the guarantees.
        entities = Entities.from_file(ROOT / "infra" / "emulators" / "Config.json").with_partitioning(TOPIC)
        self._servicebus = ServiceBusServer(entities)
        self._cosmos = CosmosServer()
        self._names = (f"quarantine-{number}" for number in itertools.count())

    async def start(self) -> None:
        """Serve, and get ready to send."""
        await self._servicebus.start()
        await self._cosmos.__aenter__()
        self._settings = Settings.from_environment(
            {
                "COSMOS": self._cosmos.connection_string,
                "SERVICEBUS": self._servicebus.connection_string,
            }
        )
        self._pool = SenderPool(servicebus_client(self._settings.servicebus.connection), TOPIC, 4)

    async def stop(self) -> None:
        """Close everything."""
        await self._pool.close()
        await self._servicebus.stop()
        await self._cosmos.__aexit__(None, None, None)

    async def relay(self, text: str) -> tuple[Outcome, dict[str, list[Message]], dict[str, dict[str, Any]]]:
        """One invocation by a relay that remembers nothing: its outcome, the topic's messages, the records."""
        self._servicebus.broker.namespace.clear()
        name = next(self._names)
        provision(self._cosmos.account, [ContainerSpec.parse(f"{DATABASE}/{name}:/partitionKey")])
        outbox = replace(self._settings.in_cosmos, quarantine_container=name)
        publisher = ServiceBusPublisher(
            self._pool, messages.plain, AcceptedLedger(), send_timeout_s=10, attempt_timeout_s=60
        )
        quarantine = StoredQuarantine(CosmosItems(Containers(outbox)))
        try:
            relay = Relay(
                NeverCheckpointed(self._settings.selection), publisher, quarantine, duplicate_window_s=600
            )
            outcome = await relay.handle(ChangeBatch(text), "fuzz", LASTING)
        finally:
            await quarantine.close()
        return outcome, self._accepted(), await self._records(name)

    def _accepted(self) -> dict[str, list[Message]]:
        held = self._servicebus.broker.namespace.outlet(f"{TOPIC}/Subscriptions/all").messages
        accepted: dict[str, list[Message]] = defaultdict(list)
        for entry in held.peek(0, 100_000):
            accepted[entry.message.session_id or ""].append(entry.message)
        return accepted

    async def _records(self, name: str) -> dict[str, dict[str, Any]]:
        async with CosmosClient.from_connection_string(self._cosmos.connection_string) as client:
            container = client.get_database_client(DATABASE).get_container_client(name)
            items = {item["id"]: item async for item in container.read_all_items()}
        records = {name: item for name, item in items.items() if item["type"] == RECORD_TYPE}
        for identifier, record in records.items():
            if count_of_parts := record.get("documentParts"):
                texts = (items[f"{identifier}-{number}"]["text"] for number in range(count_of_parts))
                record["document"] = oracle.read("".join(texts))
        return records


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="module")
def services(runner: asyncio.Runner) -> Iterator[Services]:
    running = Services()
    runner.run(running.start())
    yield running
    runner.run(running.stop())


@pytest.mark.timeout(WATCHDOG_S + DOCUMENTS // 10)
@trying(DOCUMENTS // 200)
@given(text=batches())
def test_each_document_is_found_at_the_broker_or_in_quarantine_or_was_ignored(
    runner: asyncio.Runner, services: Services, text: str
) -> None:
    text = oracle.kept(text)

    outcome, accepted, records = runner.run(services.relay(text))

    count(judge(oracle.read(text), outcome, accepted, records))
