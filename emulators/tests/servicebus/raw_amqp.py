"""AMQP as clients other than azure-servicebus speak it: Qpid Proton, with a key in SASL PLAIN. It blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from proton import Message
from proton.utils import BlockingConnection

from outbox_emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME
from outbox_emulators.servicebus.server import ServiceBusServer

WAIT_S = 5


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
        timeout=WAIT_S,
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
        answer = self._receiver.receive(WAIT_S)
        return Answer(answer)


class Answer:
    """The answer of a management node. `error` is "" where there is none."""

    def __init__(self, message: Message) -> None:
        properties: Mapping[str, Any] = message.properties or {}
        self.status = int(properties["statusCode"])
        self.description = str(properties["statusDescription"])
        self.error = str(properties.get("errorCondition", ""))
        self.body: Any = message.body
