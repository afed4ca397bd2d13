"""The client that all subscribers on the local stack use."""

from __future__ import annotations

import ssl

from azure.servicebus.aio import ServiceBusClient

from samples.contacts.consumer.receiver import end_tasks

__all__ = ["end_tasks", "subscriber_client"]


def subscriber_client(connection_string: str) -> ServiceBusClient:
    """A client for many short-lived session receivers on the local stack."""
    return ServiceBusClient.from_connection_string(
        connection_string,
        # By default the SDK repeats each wait for a session three times before it reports that there is none.
        retry_total=0,
        # By default it loads all certificates for every accepted session; there is no TLS here.
        ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
