"""Bytes that are to hang the broker, or to fill its memory: they are refused, or not read, and others are served.

Time is compared with a deadline a thousand times longer than the work takes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

import aiohttp
import pytest

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.errors import PropertiesTooLarge
from outbox_relay.emulators.servicebus.frames import ATTACH, BEGIN, DETACH, END, OPEN, TRANSFER, encode_frame
from outbox_relay.emulators.servicebus.parsing import MAX_PROPERTIES_BYTES, parse
from outbox_relay.emulators.servicebus.requests import MAX_REQUEST_BYTES
from outbox_relay.emulators.servicebus.sasl import HEADER
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.shorthand import entities_of
from packages.emulators.tests.servicebus.support import Broker
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_INIT = 0x41
SESSIONS = 10_000


def overlapping_lists(levels: int) -> bytes:
    """Lists in lists, of which every one claims to end where its items begin, so that they are read once more."""
    return b"\xd0\x00\x00\x00\x04\x00\x00\x00\x02" * levels + b"\x45" * (levels + 1)


def empty_arrays(count: int) -> list[bytes]:
    """Arrays of 65 536 nulls in ten bytes each."""
    return [b"\xf0\x00\x00\x00\x05" + struct.pack(">I", 65536) + b"\x40"] * count


async def all_answers(server: ServiceBusServer, data: bytes) -> bytes:
    """The broker's answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(data)
        async with asyncio.timeout(WATCHDOG_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("levels", [1, 60])
def test_items_end_where_their_list_does(levels: int) -> None:
    with pytest.raises(codec.CodecError, match="items of a compound"):
        codec.decode(overlapping_lists(levels))


@pytest.mark.parametrize(
    "compound",
    [
        b"\xc0\x02\x01\xa1\x01a",
        b"\xc1\x03\x02\x43\xa1\x01a",
        b"\xe0\x03\x02\x50\x01\x02",
        b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\xa1\x01a",
    ],
)
def test_no_compound_has_items_beyond_its_end(compound: bytes) -> None:
    with pytest.raises(codec.CodecError):
        codec.decode(compound)
    if compound[0] < 0xE0:
        with pytest.raises(codec.CodecError):
            list(codec.items(compound, 0))


def test_items_that_take_no_bytes_are_few() -> None:
    assert codec.decode(b"\xe0\x02\xff\x40")[0] == [None] * 255
    with pytest.raises(codec.CodecError, match="not possible"):
        codec.decode(empty_arrays(1)[0])


def test_properties_are_measured_before_they_are_read() -> None:
    items = [codec.encode_list([codec.NULL] * 255)] * 300
    message = bytes((codec.DESCRIBED, 0x53, 0x73)) + codec.encode_list(items)
    assert len(message) > MAX_PROPERTIES_BYTES

    with pytest.raises(PropertiesTooLarge):
        parse(message)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([codec.encode_list([overlapping_lists(50)])], id="overlapping lists"),
        pytest.param(empty_arrays(6000), id="arrays of nulls"),
        pytest.param([codec.encode_symbol("ANONYMOUS"), bytes(600)], id="a long frame"),
    ],
)
async def test_a_hostile_sasl_frame_ends_the_connection(server: ServiceBusServer, fields: list[bytes]) -> None:
    answers = await all_answers(server, HEADER + encode_frame(1, SASL_INIT, fields))

    assert answers.startswith(HEADER)
    assert not list(server.broker.connections)


async def test_a_hostile_transfer_ends_the_connection(server: ServiceBusServer) -> None:
    transfer = encode_frame(0, 0x14, [overlapping_lists(60)])

    await all_answers(server, AMQP_HEADER + encode_frame(0, OPEN, [codec.encode_string("evil")]) + transfer)


async def test_the_sasl_handshake_is_answered_once(server: ServiceBusServer) -> None:
    answers = await all_answers(server, HEADER * 100_000)

    assert answers.count(HEADER) <= 1


async def test_http_ends_the_connection(server: ServiceBusServer) -> None:
    # As a browser would send it to the AMQP port.
    request = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16\r\n\r\n" + AMQP_HEADER * 2

    await all_answers(server, request)


async def test_a_client_that_does_not_read_is_not_read(server: ServiceBusServer) -> None:
    """It begins and ends sessions, and each is answered."""
    plain = [codec.encode_symbol("PLAIN"), codec.encode_binary(f"\0{KEY_NAME}\0{DEFAULT_KEY}".encode())]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(HEADER + encode_frame(1, SASL_INIT, plain) + AMQP_HEADER)
    writer.write(encode_frame(0, OPEN, [codec.encode_string("evil")]))
    await reader.readexactly(100)
    [connection] = server.broker.connections
    assert isinstance(connection, AmqpConnection)
    answers, requests = connection._transport, cast(asyncio.Transport, writer.transport)
    assert answers is not None
    for transport in (answers, requests):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 4096)
    requests.pause_reading()

    begin = [codec.NULL, codec.encode_uint(0), codec.encode_uint(100), codec.encode_uint(100)]
    writer.write((encode_frame(0, BEGIN, begin) + encode_frame(0, END, [])) * SESSIONS)
    async with asyncio.timeout(WATCHDOG_S):
        while connection.writable:
            await look_again()
    assert not answers.is_reading()

    requests.resume_reading()
    async with asyncio.timeout(WATCHDOG_S):
        while not (connection.writable and answers.is_reading()):
            await reader.read(65536)
    writer.close()


@pytest.mark.parametrize(
    ("mechanism", "node"), [("ANONYMOUS", "$cbs"), ("PLAIN", "queue/$management")], ids=["cbs", "management"]
)
async def test_an_endless_request_is_refused_and_not_kept(mechanism: str, node: str) -> None:
    async with ServiceBusServer(entities_of({"queue": {}})) as server:
        reader, writer = await begin_session(server, mechanism)
        writer.write(attach_frame(node))
        await answered(reader, ATTACH)
        [connection] = server.broker.connections
        assert isinstance(connection, AmqpConnection)
        [(link, _)] = connection.links.items()

        detached = asyncio.create_task(answered(reader, DETACH))
        most = 0
        for number in range(4 * MAX_REQUEST_BYTES // PART):
            writer.write(transfer_frame(number))
            await writer.drain()
            most = max(most, link.session.incoming_bytes)
        async with asyncio.timeout(WATCHDOG_S):
            said = await detached
            writer.write(encode_frame(0, END, []))
            await answered(reader, END)
        writer.close()

    assert link.max_message_size == MAX_REQUEST_BYTES
    assert b"amqp:link:message-size-exceeded" in said
    # What was read at a time lies between two looks.
    assert most < 2 * MAX_REQUEST_BYTES
    assert link.session.incoming_bytes == 0


PART = 30_000


@pytest.mark.parametrize("levels", [1, 10, 5_000])
async def test_properties_of_a_link_that_are_no_map_refuse_it(
    levels: int, caplog: pytest.LogCaptureFixture
) -> None:
    nested = b"\x45"
    for _ in range(levels - 1):
        nested = codec.encode_list([nested])
    async with ServiceBusServer(entities_of({"queue": {}})) as server:
        reader, writer = await begin_session(server, "ANONYMOUS")
        writer.write(attach_frame("$cbs", nested))
        async with asyncio.timeout(WATCHDOG_S):
            said = await reader.read(65536)
        writer.close()

    assert b"amqp:decode-error" in said or b"amqp:connection:framing-error" in said
    assert "Traceback" not in caplog.text


async def begin_session(
    server: ServiceBusServer, mechanism: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and begin a session with an endless window."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    key = [codec.encode_binary(f"\0{KEY_NAME}\0{DEFAULT_KEY}".encode())] if mechanism == "PLAIN" else []
    writer.write(HEADER + encode_frame(1, SASL_INIT, [codec.encode_symbol(mechanism), *key]) + AMQP_HEADER)
    writer.write(encode_frame(0, OPEN, [codec.encode_string("evil")]))
    await answered(reader, OPEN)
    endless = codec.encode_uint(1 << 30)
    writer.write(encode_frame(0, BEGIN, [codec.NULL, codec.encode_uint(0), endless, endless]))
    await answered(reader, BEGIN)
    return reader, writer


def attach_frame(node: str, *properties: bytes) -> bytes:
    """A sender's attach to a node."""

    def terminus(code: int, address: str) -> bytes:
        return bytes((codec.DESCRIBED, 0x53, code)) + codec.encode_list([codec.encode_string(address)])

    source, target = terminus(0x28, "here"), terminus(0x29, node)
    zero, skipped = codec.encode_uint(0), [codec.NULL, codec.NULL]
    fields = [codec.encode_string("link"), zero, b"\x42", *skipped, source, target, *skipped, zero]
    fields += [codec.NULL, codec.NULL, codec.NULL, *properties] if properties else []
    return encode_frame(0, ATTACH, fields)


def transfer_frame(number: int) -> bytes:
    """A part of a delivery that goes on."""
    zero = codec.encode_uint(0)
    first = [zero, zero, codec.encode_binary(b"tag"), zero] if number == 0 else [zero, *[codec.NULL] * 3]
    frame = encode_frame(0, TRANSFER, [*first, codec.NULL, b"\x41"])
    return struct.pack(">I", len(frame) + PART) + frame[4:] + bytes(PART)


async def answered(reader: asyncio.StreamReader, code: int) -> bytes:
    """Read until a performative has come; returns what was read."""
    read = b""
    async with asyncio.timeout(WATCHDOG_S):
        while bytes((codec.DESCRIBED, 0x53, code)) not in read:
            part = await reader.read(65536)
            assert part, read
            read += part
    return read


async def test_a_silent_connection_holds_a_part_of_what_it_is_sent(
    broker: Broker, server: ServiceBusServer
) -> None:
    await broker.inject(kind="silent-handshake", step="sasl")
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HEADER + encode_frame(1, SASL_INIT, [codec.encode_symbol("ANONYMOUS")]) + bytes(32 << 20))
    try:
        async with asyncio.timeout(WATCHDOG_S):
            while not (found := list(server.broker.connections)) or not reads_no_more(found[0]):
                await look_again()
    finally:
        writer.transport.abort()


def reads_no_more(connection: object) -> bool:
    assert isinstance(connection, AmqpConnection)
    transport = connection._transport
    return transport is not None and not transport.is_reading()


async def test_a_websocket_message_of_a_terabyte_is_refused() -> None:
    async with ServiceBusServer(Entities(), websockets=True) as server, aiohttp.ClientSession() as http:
        address = f"http://127.0.0.1:{server.admin_port}/$servicebus/websocket"
        async with http.ws_connect(address, protocols=["amqp"]) as socket:
            connection = socket._response.connection
            assert connection is not None
            assert connection.transport is not None
            connection.transport.write(b"\x82\xff" + struct.pack(">Q", 1 << 40) + bytes(4))
            async with asyncio.timeout(WATCHDOG_S):
                closed = await socket.receive()

        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.MESSAGE_TOO_BIG)
