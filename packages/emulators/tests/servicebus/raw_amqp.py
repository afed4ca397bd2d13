"""AMQP as clients other than azure-servicebus speak it: Qpid Proton, with a key in SASL PLAIN. It blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from proton import Message
from proton.utils import BlockingConnection

from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.watchdog import WATCHDOG_S


@contextmanager
def connected(
    server: ServiceBusServer, name: str = KEY_NAME, key: str = DEFAULT_KEY
) -> Iterator[BlockingConnection]:
    """A connection with the name and key of an authorization rule."""
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{server.port}",
        user=name,
        password=key,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        timeout=WATCHDOG_S,
    )
    try:
        yield connection
    finally:
        connection.close()


class Management:
    """The management node of an entity; `Answer` has what it says."""

    def __init__(self, connection: BlockingConnection, path: str) -> None:
        self._sender = connection.create_sender(f"{path}/$management")
        self._receiver = connection.create_receiver(f"{path}/$management")

    def ask(self, operation: str, **body: Any) -> Answer:
        """Send a request; names have underscores for hyphens."""
        fields = {name.replace("_", "-"): value for name, value in body.items()}
        request = Message(body=fields, properties=cast(Any, {"operation": f"com.microsoft:{operation}"}))
        self._sender.send(request)
        answer = self._receiver.receive(WATCHDOG_S)
        return Answer(answer)


class Nodes:
    """The management nodes of entities on one connection, for code that must not block."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self._nodes: dict[str, Management] = {}

    async def ask(self, path: str, operation: str, **body: Any) -> Answer:
        """Send a request to the node of an entity."""
        return await asyncio.to_thread(self._ask, path, operation, body)

    def _ask(self, path: str, operation: str, body: Mapping[str, Any]) -> Answer:
        if path not in self._nodes:
            self._nodes[path] = Management(self.connection, path)
        return self._nodes[path].ask(operation, **body)


@asynccontextmanager
async def management_nodes(server: ServiceBusServer, *rule: str) -> AsyncIterator[Nodes]:
    """Management nodes over a connection with the name and key of an authorization rule."""
    connection = connected(server, *rule)
    try:
        yield Nodes(await asyncio.to_thread(connection.__enter__))
    finally:
        await asyncio.to_thread(connection.__exit__, None, None, None)


class Answer:
    """The answer of a management node. `error` is "" if there is none."""

    def __init__(self, message: Message) -> None:
        properties: Mapping[str, Any] = message.properties or {}
        self.status = int(properties["statusCode"])
        self.description = str(properties["statusDescription"])
        self.error = str(properties.get("errorCondition", ""))
        self.body: Any = message.body
        # A binary value is a view of the message's memory (python-qpid-proton 0.40), which ends with it.
        self._message = message
