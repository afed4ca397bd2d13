"""The client that a receiver needs, and the connections that it opens."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from azure.core.credentials_async import AsyncTokenCredential
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

_REMEDY = "Make the client with inbox.connect(), or with retry_total=0."


def connect(address: str, credential: AsyncTokenCredential | None = None) -> ServiceBusClient:
    """Return a client for `Receiver`. Use it with `async with`; any number of receivers can share it.

    Args:
        address: A connection string, or with a credential the namespace: `name.servicebus.windows.net`.
        credential: An identity, such as `azure.identity.aio.DefaultAzureCredential`.

    Raises:
        ValueError: The connection string is not one.
    """
    # Shared: the SDK (7.15.0) would otherwise load all CA certificates for every session it accepts.
    ssl_context = ssl.create_default_context()
    if credential is None:
        return ServiceBusClient.from_connection_string(address, retry_total=0, ssl_context=ssl_context)
    return ServiceBusClient(address, credential, retry_total=0, ssl_context=ssl_context)


def check_retries(client: ServiceBusClient) -> None:
    """Reject a client that retries, because its retries hide errors from the receiver.

    With the SDK's default (7.15.0), a wait for the next session is repeated three times, with pauses in which no
    session is accepted. A session receiver cannot use the retries anyway: it ends with its connection.

    Raises:
        ValueError: The client retries.
    """
    retries = getattr(getattr(client, "_config", None), "retry_total", 0)
    if retries:
        raise ValueError(
            f"The client retries each operation {retries} times and accepts no sessions while it backs off. "
            + _REMEDY
        )


@dataclass(frozen=True, slots=True)
class Entity:
    """The entity that a receiver reads: a subscription or a queue.

    Attributes:
        name: For messages to people.
        topic: The topic, or the queue.
        subscription: The subscription of the topic; "" for a queue.
        receiver: Makes a receiver of the SDK; takes its options.
    """

    name: str
    topic: str
    subscription: str
    receiver: Callable[..., ServiceBusReceiver]

    @classmethod
    def of(
        cls, client: ServiceBusClient, topic: str | None, subscription: str | None, queue: str | None
    ) -> Entity:
        """Return the subscription of a topic, or the queue. Raises ValueError if it is not clear which."""
        if queue is not None and topic is None and subscription is None:
            return cls(queue, queue, "", partial(client.get_queue_receiver, queue_name=queue))
        if queue is not None or topic is None or subscription is None:
            raise ValueError("Give a topic and a subscription, or a queue.")
        get = partial(client.get_subscription_receiver, topic_name=topic, subscription_name=subscription)
        return cls(f"{topic}/{subscription}", topic, subscription, get)


class Connections:
    """The connections that a receiver has opened. Closes them without waiting for the peer.

    To close a connection, the SDK (7.15.0) waits for the peer's answer without a time limit. If it is cancelled
    while it waits, it drops its reference to the connection. The socket is private.
    """

    def __init__(self, receiver: ServiceBusReceiver) -> None:
        self._receiver = receiver
        self._seen: list[Any] = []

    def note(self) -> None:
        """Remember the current connection. Call this before the SDK can drop its reference."""
        connection = getattr(getattr(self._receiver, "_handler", None), "_connection", None)
        if connection is not None and all(each is not connection for each in self._seen):
            self._seen.append(connection)

    def discard(self) -> None:
        """Close the sockets immediately, without notifying the peer. Closed sockets are skipped."""
        self.note()
        for connection in self._seen:
            writer = getattr(getattr(connection, "_transport", None), "writer", None)
            if writer is not None:
                writer.transport.abort()
