"""The SASL mechanisms that the service offers, as clients other than azure-servicebus use them."""

from __future__ import annotations

import asyncio

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from outbox_emulators.servicebus import codec
from outbox_emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME
from outbox_emulators.servicebus.frames import encode_frame
from outbox_emulators.servicebus.sasl import HEADER
from outbox_emulators.servicebus.server import ServiceBusServer

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

    await asyncio.wait_for(reader.read(), 5)

    writer.close()


def send_with_key(port: int, key: str) -> None:
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{port}",
        user=KEY_NAME,
        password=key,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        timeout=5,
    )
    try:
        connection.create_sender("orders").send(Message(body=b"x", inferred=True, id="1"))
    finally:
        connection.close()


async def test_a_key_in_plain_serves_without_a_token(server: ServiceBusServer) -> None:
    await asyncio.to_thread(send_with_key, server.port, DEFAULT_KEY)

    entries = server.broker.namespace.outlet("orders").messages.peek(0, 10)
    assert [entry.message.message_id for entry in entries] == ["1"]


async def test_a_wrong_key_in_plain_does_not(server: ServiceBusServer) -> None:
    with pytest.raises(ConnectionException, match=r"(?i)auth"):
        await asyncio.to_thread(send_with_key, server.port, "wrong")
