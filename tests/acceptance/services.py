"""The services under test through the real SDKs: what is written, what comes of it, and what is left to remove.

Nothing here asks a target for more than its data plane, or assumes that it is empty or its own.
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

from outbox import UnitOfWork
from relay.cli.smoke.subscriptions import open_session
from relay.cosmos.client import cosmos_client
from relay.servicebus.client import servicebus_client
from relay.settings import Settings
from tests.acceptance.parcels import TTL_S, Parcel, ParcelScanned

# A target in another region takes its time; a message that is not there after this will not come.
WAIT_S = 30.0

# Sessions received from at a time, each on a connection of its own: the Service Bus emulator takes ten in all.
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
        """A partition key that nothing has yet; what is under it is removed in the end."""
        self._keys.append(f"acceptance-{uuid4()}")
        return self._keys[-1]

    def unit_of_work(self) -> UnitOfWork:
        """Events of the type that only this test's relay looks for."""
        return UnitOfWork(self.outbox, event_ttl=TTL_S, event_type=self.settings.event_type)

    async def tell(self, parcel: Parcel, *scans: ParcelScanned) -> None:
        """Commit events about a parcel, and the parcel with its own one where it is new, in one batch."""
        async with self.unit_of_work() as work:
            if parcel.is_new:
                work.repository(Parcel).create(parcel)
            for scan in scans:
                work.events.create(scan, about=parcel)
            await work.commit()

    async def read_feed(self, **start: Any) -> tuple[list[dict[str, Any]], str]:
        """The change feed from `start` on, as the SDK takes it, and the continuation to go on with."""
        documents = [item async for item in self.outbox.query_items_change_feed(**start)]
        # Not by the SDK's response_hook: it is called before the continuation is put together.
        continuation: str = self.outbox.client_connection.last_response_headers["etag"]
        return documents, continuation

    async def changes(self, key: str) -> list[dict[str, Any]]:
        """The change feed of one partition key, from its beginning; of each commit the entities, then the events
        in order, as the feed promises none within a transaction.
        """
        documents, _ = await self.read_feed(partition_key=key, start_time="Beginning")
        return sorted(documents, key=lambda document: (document["_lsn"], document.get("order", -1)))

    async def events(self, key: str) -> list[dict[str, Any]]:
        """Only the events of it."""
        return [item for item in await self.changes(key) if item["type"] == self.settings.event_type]

    async def quarantined(self, key: str) -> list[dict[str, Any]]:
        """The quarantine records of one partition key, as soon as there are any; TimeoutError."""
        async with asyncio.timeout(WAIT_S):
            # The relay wrote them in its own session with Cosmos DB: to another one they may show a little later.
            while not (found := await _query(self._quarantine, key, "SELECT * FROM c")):
                await asyncio.sleep(0.1)
        return found

    async def received(self, key: str) -> list[ServiceBusReceivedMessage]:
        """All that the key's session holds and has not given yet, in order."""
        return (await self.received_of_each([key]))[0]

    async def received_of_each(self, keys: Sequence[str]) -> list[list[ServiceBusReceivedMessage]]:
        """The same of several sessions, at the places of their keys.

        A marker is sent behind what a session holds: what does not come before the marker does not come at all.
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
        deadline = time.monotonic() + WAIT_S
        async with open_session(self.settings, self._subscription, key, WAIT_S) as session:
            while (message := await session.receive(deadline - time.monotonic())) is not None:
                if message.message_id == marker:
                    return messages
                messages.append(message)
        raise AssertionError(
            f"the marker did not come to '{self._subscription}' within {WAIT_S:g} s, behind {len(messages)} "
            "message(s): has the subscription a rule that passes it over, or another receiver?"
        )

    @asynccontextmanager
    async def sender(self) -> AsyncIterator[ServiceBusSender]:
        """A sender to the topic, on a connection of its own."""
        async with (
            servicebus_client(self.settings.servicebus) as client,
            client.get_topic_sender(self.settings.servicebus_topic) as sender,
        ):
            yield sender

    async def clean_up(self) -> None:
        """Remove every document under the keys that were given out."""
        async with asyncio.TaskGroup() as tasks:
            for key in self._keys:
                for container in (self.outbox, self._quarantine):
                    tasks.create_task(_remove_all(container, key))


@asynccontextmanager
async def open_services(settings: Settings, subscription: str) -> AsyncIterator[Services]:
    """Connect, and leave nothing behind in the containers."""
    async with cosmos_client(settings.cosmos) as client:
        database = client.get_database_client(settings.cosmos_database)
        services = Services(
            settings,
            subscription,
            database.get_container_client(settings.cosmos_container),
            database.get_container_client(settings.cosmos_quarantine_container),
        )
        try:
            yield services
        finally:
            await services.clean_up()


async def _query(container: ContainerProxy, key: str, query: str) -> list[dict[str, Any]]:
    return [item async for item in container.query_items(query, partition_key=key)]


async def _remove_all(container: ContainerProxy, key: str) -> None:
    for item in await _query(container, key, "SELECT c.id FROM c"):
        with suppress(CosmosResourceNotFoundError):  # its time to live may be over
            await container.delete_item(item["id"], partition_key=key)
