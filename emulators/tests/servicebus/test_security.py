"""Claims-based security with the real SDK."""

from __future__ import annotations

import time

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp.utils import generate_sas_token
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from outbox_emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME, Claim
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.server import ServiceBusServer
from outbox_emulators.servicebus.timers import system_clock


def client_with(server: ServiceBusServer, credential: object) -> ServiceBusClient:
    return ServiceBusClient(f"127.0.0.1:{server.port}", credential, use_tls=False, retry_total=0)  # type: ignore[arg-type]


def a_token(server: ServiceBusServer, path: str, expires_in: float = 60) -> AzureSasCredential:
    audience = f"sb://127.0.0.1:{server.port}/{path}"
    expiry = int(time.time() + expires_in)
    token = generate_sas_token(audience, KEY_NAME, DEFAULT_KEY, expiry)  # type: ignore[no-untyped-call]
    return AzureSasCredential(token)


async def test_a_wrong_key_is_an_authentication_error(server: ServiceBusServer) -> None:
    wrong = server.connection_string.replace("SharedAccessKey=", "SharedAccessKey=no")
    async with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError) as raised:
            await client.get_queue_sender("orders").__aenter__()

    assert "401" in str(raised.value.inner_exception)
    assert "InvalidSignature" in str(raised.value.inner_exception)


async def test_another_key_can_be_set(entities: Entities) -> None:
    async with (
        ServiceBusServer(entities, key="mine") as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        assert "SharedAccessKey=mine;" in server.connection_string
        await sender.send_messages(ServiceBusMessage("x"))


async def test_a_named_key_serves_as_well(server: ServiceBusServer) -> None:
    named = AzureNamedKeyCredential(KEY_NAME, DEFAULT_KEY)
    async with client_with(server, named) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))


async def test_a_token_serves_for_its_entity_only(server: ServiceBusServer) -> None:
    async with client_with(server, a_token(server, "orders")) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender("chats").__aenter__()


async def test_an_expired_token_is_refused(server: ServiceBusServer) -> None:
    expired = a_token(server, "orders", expires_in=-5)
    async with client_with(server, expired) as client:
        with pytest.raises(ServiceBusError):
            await client.get_queue_sender("orders").__aenter__()


async def test_a_link_ends_when_its_token_expires(entities: Entities) -> None:
    later_ms = 0
    async with (
        ServiceBusServer(entities, clock=lambda: system_clock() + later_ms) as server,
        client_with(server, a_token(server, "orders")) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x"))
        later_ms = 3_600_000
        server.broker.namespace.timers.run_due()

        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("x"))


async def test_a_link_without_a_token_is_refused(
    server: ServiceBusServer, client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = client.get_queue_sender("orders")
    another = Claim("another", int(time.time()) + 60)
    monkeypatch.setattr(server.broker.access, "check", lambda token, audience: another)

    with pytest.raises(ServiceBusAuthorizationError, match="amqp:unauthorized-access"):
        await sender.__aenter__()
