"""Access to the services under test through the real SDKs, with clean-up.

Uses only the data plane of a target, and does not assume that the target is empty or used by nobody else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusSender

from outbox_relay.operator.cli.smoke_receiver import open_session
from outbox_relay.outbox import UnitOfWork
from relay.config.clients import cosmos_client, servicebus_client
from relay.config.settings import Settings
from tests.acceptance.parcels import TTL_S, Parcel, ParcelScanned
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

# Long enough for a target in another region.

# Concurrent sessions, each on its own connection. The official Service Bus emulator allows ten connections.
RECEIVERS = 4


class Services:
    """Cosmos DB and Service Bus as the settings name them; `async with open_services(…)` makes it."""

    def __init__(
        self, settings: Settings, subscription: str, outbox: ContainerProxy, quarantine: ContainerProxy
    ) -> None:
        self.settings = settings
        self.outbox = outbox
        self._subscription = subscription
        self._quarantine = quarantine
        self._keys: list[str] = []

    def new_key(self) -> str:
        """Return an unused partition key. Its documents are removed after the test."""
        self._keys.append(f"acceptance-{uuid4()}")
        return self._keys[-1]

    def unit_of_work(self) -> UnitOfWork:
        """Return a unit of work whose events only this test's relay publishes."""
        return UnitOfWork(self.outbox, event_ttl=TTL_S, event_type=self.settings.policy.event_type)

    async def commit(self, parcel: Parcel, *scans: ParcelScanned) -> None:
        """Commit events about a parcel in one batch, together with the parcel if it is new."""
        async with self.unit_of_work() as work:
            if parcel.is_new:
                work.repository(Parcel).create(parcel)
            for scan in scans:
                work.events.create(scan, about=parcel)
            await work.commit()

    async def read_feed(self, **start: Any) -> tuple[list[dict[str, Any]], str]:
        """Read the change feed from `start`, as the SDK takes it. Return the documents and the continuation."""
        documents = [item async for item in self.outbox.query_items_change_feed(**start)]
        # Not in the SDK's response_hook, which is called before the continuation is complete.
        continuation: str = self.outbox.client_connection.last_response_headers["etag"]
        return documents, continuation

    async def changes(self, key: str) -> list[dict[str, Any]]:
        """Return the change feed of a partition key from the beginning. The feed does not specify the order within
        a transaction, so each commit is sorted: the entities, then the events in order.
        """
        documents, _ = await self.read_feed(partition_key=key, start_time="Beginning")
        return sorted(documents, key=lambda document: (document["_lsn"], document.get("order", -1)))

    async def events(self, key: str) -> list[dict[str, Any]]:
        """Return only the events of it."""
        return [item for item in await self.changes(key) if item["type"] == self.settings.policy.event_type]

    async def quarantined(self, key: str) -> list[dict[str, Any]]:
        """Wait for quarantine records of a partition key and return them. Raises TimeoutError."""
        async with asyncio.timeout(WATCHDOG_S):
            # The relay wrote them in its own Cosmos DB session, so this client may see them a little later.
            while not (
                found := await _query(self._quarantine, key, "SELECT * FROM c WHERE c.type != 'setAsideOrder'")
            ):
                await look_again()
        return found

    async def received(self, key: str) -> list[ServiceBusReceivedMessage]:
        """Receive the remaining messages of the key's session, in order."""
        return (await self.received_of_each([key]))[0]

    async def received_of_each(self, keys: Sequence[str]) -> list[list[ServiceBusReceivedMessage]]:
        """Receive from several sessions. The lists are in the order of `keys`.

        A marker is sent to the end of each session, so a message that does not arrive before it is missing.
        """
        markers = [str(uuid4()) for _ in keys]
        async with self.sender() as sender:
            for key, marker in zip(keys, markers, strict=True):
                await sender.send_messages(
                    ServiceBusMessage(b"", message_id=marker, session_id=key, subject="AcceptanceMarker")
                )
        free = asyncio.Semaphore(RECEIVERS)

        async def receive(key: str, marker: str) -> list[ServiceBusReceivedMessage]:
            async with free:
                return await self._receive_until(key, marker)

        async with asyncio.TaskGroup() as tasks:
            receiving = [tasks.create_task(receive(*each)) for each in zip(keys, markers, strict=True)]
        return [task.result() for task in receiving]

    async def _receive_until(self, key: str, marker: str) -> list[ServiceBusReceivedMessage]:
        messages: list[ServiceBusReceivedMessage] = []
        deadline = time.monotonic() + WATCHDOG_S
        async with open_session(self.settings, self._subscription, key, WATCHDOG_S) as session:
            while (message := await session.receive(deadline - time.monotonic())) is not None:
                if message.message_id == marker:
                    return messages
                messages.append(message)
        raise AssertionError(
            f"the marker did not come to '{self._subscription}' within {WATCHDOG_S:g} s, behind {len(messages)} "
            "message(s): has the subscription a rule that passes it over, or another receiver?"
        )

    @asynccontextmanager
    async def sender(self) -> AsyncIterator[ServiceBusSender]:
        """A sender to the topic, on its own connection."""
        async with (
            servicebus_client(self.settings.servicebus.connection) as client,
            client.get_topic_sender(self.settings.servicebus.entity) as sender,
        ):
            yield sender

    async def clean_up(self) -> None:
        """Remove all documents with the partition keys of this test."""
        async with asyncio.TaskGroup() as tasks:
            for key in self._keys:
                for container in (self.outbox, self._quarantine):
                    tasks.create_task(_remove_all(container, key))


@asynccontextmanager
async def open_services(settings: Settings, subscription: str) -> AsyncIterator[Services]:
    """Connect, and remove the test's documents afterwards."""
    async with cosmos_client(settings.in_cosmos.connection) as client:
        database = client.get_database_client(settings.in_cosmos.database)
        services = Services(
            settings,
            subscription,
            database.get_container_client(settings.in_cosmos.container),
            database.get_container_client(settings.in_cosmos.quarantine_container),
        )
        try:
            yield services
        finally:
            await services.clean_up()


async def _query(container: ContainerProxy, key: str, query: str) -> list[dict[str, Any]]:
    return [item async for item in container.query_items(query, partition_key=key)]


async def _remove_all(container: ContainerProxy, key: str) -> None:
    for item in await _query(container, key, "SELECT c.id FROM c"):
        with suppress(CosmosResourceNotFoundError):  # it may have expired
            await container.delete_item(item["id"], partition_key=key)
