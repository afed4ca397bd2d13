"""The network in memory behaves as one of machines does, as far as a program can notice."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest

from verification.simulation import determinism
from verification.simulation.connected import ConnectedWorld
from verification.simulation.network import HOST
from verification.simulation.world import Process

PORT = 5000
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def world() -> Iterator[ConnectedWorld]:
    made = ConnectedWorld("network")
    with determinism.of(made):
        yield made
        made.close()
    # Collect the rest of the processes now, so that it does not end during another test.
    gc.collect()


@pytest.fixture
def client(world: ConnectedWorld) -> Process:
    return world.process("client")


def serve(world: ConnectedWorld, handler: Handler) -> Process:
    server = world.process("server")
    world.run_task(server, asyncio.start_server(handler, HOST, PORT), 1)
    return server


def connect(world: ConnectedWorld, client: Process) -> Streams:
    streams: Streams = world.run_task(client, asyncio.open_connection(HOST, PORT), 200)
    return streams


def let_pass(world: ConnectedWorld, seconds: float) -> None:
    world.run_task(world.outside, asyncio.sleep(seconds), seconds + 1)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100_000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.get_running_loop().create_future()


async def exchange(streams: Streams, data: bytes) -> bytes:
    reader, writer = streams
    writer.write(data)
    return await reader.readexactly(len(data))


def test_a_stream_is_echoed_in_its_order(world: ConnectedWorld, client: Process) -> None:
    serve(world, echo)
    streams = connect(world, client)
    sent = bytes(range(256)) * 4000

    async def send_all() -> bytes:
        reader, writer = streams
        reading = asyncio.ensure_future(reader.readexactly(len(sent)))
        for start in range(0, len(sent), 7000):
            writer.write(sent[start : start + 7000])
            await writer.drain()
        return await reading

    assert world.run_task(client, send_all(), 60) == sent


def test_what_is_written_arrives_in_pieces(world: ConnectedWorld, client: Process) -> None:
    sizes: list[int] = []

    async def measure(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100_000):
            sizes.append(len(data))
            writer.write(b"." * len(data))

    serve(world, measure)
    streams = connect(world, client)
    for _ in range(50):
        world.run_task(client, exchange(streams, b"x" * 100), 10)

    assert sum(sizes) == 5000
    assert set(sizes) > {100}


def test_a_writer_is_paused_while_the_peer_reads_nothing(world: ConnectedWorld, client: Process) -> None:
    server = serve(world, echo)
    reader, writer = connect(world, client)
    server.freeze()

    async def fill() -> None:
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    filling = client.start(fill())
    let_pass(world, 5)
    buffered = writer.transport.get_write_buffer_size()

    assert not filling.done()
    assert buffered > 60_000
    filling.cancel()
    server.resume()
    world.run_task(client, reader.readexactly(world.network.capacity + buffered), 10)
    assert writer.transport.get_write_buffer_size() == 0


def test_one_direction_can_be_ended_alone(world: ConnectedWorld, client: Process) -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.close()

    serve(world, answer_at_the_end)
    reader, writer = connect(world, client)
    writer.write(b"all")
    writer.write_eof()

    assert world.run_task(client, reader.read(), 10) == b"all"


def test_nobody_listens(world: ConnectedWorld, client: Process) -> None:
    with pytest.raises(ConnectionRefusedError, match="nobody listens to port 5000"):
        connect(world, client)


def test_the_connections_of_a_killed_process_end(world: ConnectedWorld, client: Process) -> None:
    server = serve(world, echo)
    reader, writer = connect(world, client)
    world.run_task(client, exchange((reader, writer), b"x"), 10)

    server.kill()

    assert world.run_task(client, reader.read(), 10) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(world, client)
    # Nobody is there: the first packet gets a reset for an answer.
    writer.write(b"x")
    let_pass(world, 1)
    with pytest.raises(ConnectionResetError):
        world.run_task(client, writer.drain(), 10)


def test_to_close_what_a_killed_process_has_left_changes_nothing(world: ConnectedWorld, client: Process) -> None:
    """Close it as libraries do on collection, at a moment that no seed determines."""
    serve(world, echo)
    _, writer = connect(world, client)
    client.kill()
    before = world.entropy.getstate()

    writer.transport.close()
    writer.transport.abort()

    assert world.entropy.getstate() == before


def test_a_process_that_is_killed_with_something_unread_resets(world: ConnectedWorld, client: Process) -> None:
    server = serve(world, read_nothing)
    reader, writer = connect(world, client)
    let_pass(world, 1)
    server.freeze()
    writer.write(b"unread")
    let_pass(world, 1)

    server.kill()

    with pytest.raises(ConnectionResetError):
        world.run_task(client, reader.read(), 10)


def test_what_a_killed_process_had_sent_arrives(world: ConnectedWorld, client: Process) -> None:
    received: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()

    serve(world, receive)
    _, writer = connect(world, client)

    async def send() -> None:
        writer.write(b"last words")

    world.run_task(client, send(), 1)
    client.kill()
    world.run(lambda: bool(received), 10)

    assert received == [b"last words"]


def test_the_machine_of_a_frozen_process_goes_on(world: ConnectedWorld, client: Process) -> None:
    server = serve(world, echo)
    server.freeze()

    streams = connect(world, client)
    answer = client.start(exchange(streams, b"late"))
    let_pass(world, 100)
    assert not answer.done()
    server.resume()

    assert world.run(answer.done, 1)


def test_what_was_cut_off_for_a_while_arrives_after_all(world: ConnectedWorld, client: Process) -> None:
    serve(world, echo)
    streams = connect(world, client)
    way = world.network.port(PORT).way
    way.cut.add("client")
    answer = client.start(exchange(streams, b"late"))
    let_pass(world, 20)
    assert not answer.done()

    way.cut.clear()

    assert world.run(answer.done, 20)
    assert answer.result() == b"late"


def test_a_connection_that_is_cut_off_for_too_long_ends_at_the_sender(
    world: ConnectedWorld, client: Process
) -> None:
    serve(world, echo)
    reader, writer = connect(world, client)
    way = world.network.port(PORT).way
    way.cut.add("client")
    began = world.now
    writer.write(b"lost")

    with pytest.raises(TimeoutError):
        world.run_task(client, reader.read(), 2000)
    assert world.now - began == pytest.approx(925, abs=1)

    way.cut.clear()
    with pytest.raises(TimeoutError):
        world.run_task(client, writer.drain(), 10)


def test_a_socket_can_choose_how_long_it_waits_for_an_answer(world: ConnectedWorld, client: Process) -> None:
    serve(world, echo)
    reader, writer = connect(world, client)
    writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)
    world.network.port(PORT).way.cut.add("client")
    began = world.now
    writer.write(b"lost")

    with pytest.raises(TimeoutError):
        world.run_task(client, reader.read(), 2000)
    assert world.now - began == pytest.approx(1, abs=0.1)


def runs_until(world: ConnectedWorld, task: asyncio.Task[bytes], rounds: int) -> bool:
    """Return True if the task ends within a number of rounds of callbacks."""
    last = world.rounds + rounds
    world.run(lambda: task.done() or world.rounds > last, 10)
    return task.done()


def test_a_connection_is_given_up_whenever_it_was_cut_off(world: ConnectedWorld, client: Process) -> None:
    serve(world, echo)
    way = world.network.port(PORT).way
    for _ in range(300):
        reader, writer = connect(world, client)
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)
        way.cut.add("client")
        writer.write(b"lost")
        reading = client.loop.create_task(reader.read())

        assert runs_until(world, reading, 100)
        assert isinstance(reading.exception(), TimeoutError)
        way.cut.clear()


def test_a_connect_without_an_answer_is_given_up(world: ConnectedWorld, client: Process) -> None:
    serve(world, echo)
    world.network.port(PORT).way.is_down = True

    with pytest.raises(TimeoutError):
        connect(world, client)

    assert world.now == pytest.approx(127, abs=1)


def test_a_connect_succeeds_once_the_way_is_open(world: ConnectedWorld, client: Process) -> None:
    serve(world, echo)
    way = world.network.port(PORT).way
    way.is_down = True
    connecting = client.start(asyncio.open_connection(HOST, PORT))
    let_pass(world, 5)

    way.is_down = False

    assert world.run(connecting.done, 5)
    assert world.run_task(client, exchange(connecting.result(), b"x"), 5) == b"x"


def test_a_lossy_way_resets_connections(world: ConnectedWorld, client: Process) -> None:
    serve(world, echo)
    streams = connect(world, client)
    world.network.port(PORT).way.loses = 1.0

    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        world.run_task(client, exchange(streams, b"x"), 5)


def test_the_same_seed_gives_the_same_bytes_at_the_same_time() -> None:
    def digest(seed: str) -> str:
        world = ConnectedWorld(seed)
        with determinism.of(world):
            serve(world, echo)
            client = world.process("client")
            streams = connect(world, client)
            for _ in range(20):
                world.run_task(client, exchange(streams, b"x" * 100), 10)
            world.close()
        return world.network.digest()

    assert digest("1") == digest("1")
    assert digest("1") != digest("2")
