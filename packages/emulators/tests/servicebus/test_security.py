"""Who a client is: claims-based security with the real SDK, shared access signatures, and SASL mechanisms."""

from __future__ import annotations

import asyncio
import hmac
import time
from base64 import b64encode
from urllib.parse import quote_plus

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

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME, Claim, SharedAccess
from outbox_relay.emulators.servicebus.authorization import AuthorizationRule, Right
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.errors import Unauthorized
from outbox_relay.emulators.servicebus.frames import encode_frame
from outbox_relay.emulators.servicebus.sasl import HEADER
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.timers import system_clock
from tests.support.watchdog import WATCHDOG_S


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


# Shared access signatures, made by the SDK and by others


NOW = 1_700_000_000
KEY = "the key"
AUDIENCE = "sb://127.0.0.1:5672/orders"


@pytest.fixture
def access() -> SharedAccess:
    rules = {
        "": AuthorizationRule(KEY_NAME, Right.ANY, KEY, "the second key"),
        "orders": AuthorizationRule("listener", Right.LISTEN, "for orders", "for orders too"),
    }
    return SharedAccess(
        lambda path: [(owner, rule) for owner, rule in rules.items() if owner in ("", path)], lambda: NOW
    )


def token(audience: str = AUDIENCE, key: str = KEY, name: str = KEY_NAME, expiry: int = NOW + 60) -> str:
    made: str = generate_sas_token(audience, name, key, expiry)  # type: ignore[no-untyped-call]
    return made


def signed(expiry: str) -> str:
    """A token with a valid signature and this text as its expiry."""
    resource = quote_plus(AUDIENCE)
    signature = b64encode(hmac.digest(KEY.encode(), f"{resource}\n{expiry}".encode(), "sha256"))
    return f"SharedAccessSignature sr={resource}&sig={quote_plus(signature)}&se={expiry}&skn={KEY_NAME}"


def test_a_token_of_the_sdk_grants_its_entity(access: SharedAccess) -> None:
    assert access.check(token(), AUDIENCE) == Claim("orders", NOW + 60)
    assert access.check(token(key="the second key"), AUDIENCE) == Claim("orders", NOW + 60)


def test_the_key_of_an_entity_grants_its_rights_and_nothing_elsewhere(access: SharedAccess) -> None:
    for key in ("for orders", "for orders too"):
        assert access.check(token(key=key, name="listener"), AUDIENCE) == Claim("orders", NOW + 60, Right.LISTEN)
        [claim] = access.check_key("listener", key, ["orders", "others"])
        assert (claim.path, claim.rights) == ("orders", Right.LISTEN)
    others = AUDIENCE.replace("orders", "others")
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        access.check(token(others, "for orders", "listener"), others)
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        access.check_key("listener", "for orders", ["others"])


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["Read"], "'Read' is no right"),
        ([], "at least one"),
        (["Manage", "Send"], "needs Send and Listen"),
    ],
)
def test_rights_that_are_not_valid_are_refused(names: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Right.parse(names)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (token(key="another"), "InvalidSignature"),
        (token(name="Nobody"), "InvalidSignature"),
        (token().replace("orders", "others"), "InvalidSignature"),
        (token().replace(f"se={NOW + 60}", f"se={NOW + 6000}"), "InvalidSignature"),
        (token(expiry=NOW), "ExpiredToken"),
        (token("sb://127.0.0.1:5672/other"), "InvalidAudience"),
        ("eyJhbGciOi.a.b", "MalformedToken"),
        (signed("²"), "MalformedToken"),
        (signed("9" * 5_000), "MalformedToken"),
        (signed("9" * 12), "MalformedToken"),
        (signed(""), "MalformedToken"),
        ("SharedAccessSignature sr=x&sig=y", "MalformedToken"),
        ("", "MalformedToken"),
    ],
)
def test_any_other_is_refused_with_the_reason(access: SharedAccess, bad: str, complaint: str) -> None:
    with pytest.raises(Unauthorized, match=complaint):
        access.check(bad, AUDIENCE)


def test_a_claim_covers_its_path_and_all_below_and_nothing_beside() -> None:
    claim = Claim("Orders", NOW)

    assert claim.covers("orders")
    assert claim.covers("orders/$management")
    assert not claim.covers("orders2")
    assert not claim.covers("topic/Subscriptions/orders")
    assert Claim("", NOW).covers("anything")


# The SASL mechanisms that the service offers, as clients other than azure-servicebus use them


INIT = 0x41
OK, REFUSED = 0, 1


def init(mechanism: str, response: bytes = b"") -> bytes:
    return encode_frame(1, INIT, [codec.encode_symbol(mechanism), codec.encode_binary(response)])


async def handshake(server: ServiceBusServer, *frames: bytes) -> bytes:
    """Send the SASL header and frames; returns all that comes until the broker has nothing to add, or closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(HEADER + b"".join(frames))
        answer = await reader.readexactly(len(HEADER))
        for _ in range(1 + len(frames)):
            size = await reader.readexactly(4)
            answer += size + await reader.readexactly(int.from_bytes(size) - 4)
        return answer
    finally:
        writer.close()


async def test_the_mechanisms_of_the_service_are_offered(server: ServiceBusServer) -> None:
    answer = await handshake(server)

    assert answer.startswith(HEADER)
    [mechanisms] = codec.decode(answer, len(HEADER) + 11)[0]
    assert mechanisms == ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (init("MSSBCBS"), OK),
        (init("ANONYMOUS", b"me"), OK),
        (init("EXTERNAL"), OK),
        (init("PLAIN", f"\0{KEY_NAME}\0{DEFAULT_KEY}".encode()), OK),
        (init("PLAIN", f"\0{KEY_NAME}\0wrong".encode()), REFUSED),
        (init("PLAIN", f"\0wrong\0{DEFAULT_KEY}".encode()), REFUSED),
        (init("PLAIN", b"nonsense"), REFUSED),
        (init("CRAM-MD5"), REFUSED),
        (encode_frame(1, INIT, []), REFUSED),
        (encode_frame(1, 0x43, [codec.encode_binary(b"")]), REFUSED),
    ],
)
async def test_a_mechanism_is_accepted_or_refused(server: ServiceBusServer, frame: bytes, code: int) -> None:
    answer = await handshake(server, frame)

    assert answer.endswith(encode_frame(1, 0x44, [codec.encode_ubyte(code)]))


async def test_a_refused_client_is_cut_off(server: ServiceBusServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HEADER + init("PLAIN", b"\0a\0b"))

    await asyncio.wait_for(reader.read(), WATCHDOG_S)

    writer.close()
