"""What subscribers on the local stack have in common."""

from __future__ import annotations

import ssl

from azure.servicebus.aio import ServiceBusClient

from samples.contacts.consumer.receiver import end_tasks

__all__ = ["end_tasks", "subscriber_client"]


def subscriber_client(connection_string: str) -> ServiceBusClient:
    """A client for many short-lived session receivers on the local stack."""
    return ServiceBusClient.from_connection_string(
        connection_string,
        # The SDK would repeat each wait for a session three times before it says that there is none.
        retry_total=0,
        # It would read all certificates for every session accepted, though nothing here speaks TLS.
        ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
