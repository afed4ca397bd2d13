"""The bytes of a connection that the SDK has opened: frames that are read, what has left, and what keeps it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp.constants import MAX_FRAME_SIZE_BYTES

from relay.core.errors import RetryableError
from relay.servicebus.pipelined import sdk
from tests.support import virtual_time
from tests.support.amqp_memory import MemoryConnection

EMPTY = bytes((0, 0, 0, 8, 2, 0, 0, 0))


def frame(body: bytes, *, header_words: int = 2) -> bytes:
    """Return a frame of these bytes; `header_words` is the length of its header in words of four bytes."""
    header = bytes((header_words, 0, 0, 9)).ljust(4 * header_words - 4, b"\0")
    return (4 + len(header) + len(body)).to_bytes(4, "big") + header + body


async def test_frames_are_read_whole_whatever_parts_they_come_in() -> None:
    connection = MemoryConnection()
    first, second, extended = frame(b"one"), frame(b"another"), frame(b"x", header_words=3)
    sent = first + EMPTY + second + frame(b"", header_words=4) + extended

    read: list[bytes] = []
    for at in range(len(sent)):
        connection.feed(sent[at : at + 1])
        read += await connection.read()
    assert read == [first, second, extended]

    connection.feed(sent + first[:5])
    assert await connection.read() == [first, second, extended]
    connection.feed(first[5:])
    assert await connection.read() == [first]


@pytest.mark.parametrize("size", [0, 7, MAX_FRAME_SIZE_BYTES + 1])
async def test_what_can_be_no_frame_ends_the_connection(size: int) -> None:
    connection = MemoryConnection()
    connection.feed(size.to_bytes(4, "big") + bytes(8))

    with pytest.raises(ConnectionResetError, match=f"its size would be {size} bytes"):
        await connection.read()


async def test_a_frame_of_the_largest_size_is_awaited() -> None:
    connection = MemoryConnection()
    connection.feed(MAX_FRAME_SIZE_BYTES.to_bytes(4, "big") + bytes((2, 0, 0, 9)))

    assert await connection.read() == []
    connection.end()
    with pytest.raises(ConnectionResetError, match="has closed the connection"):
        await connection.read()


class Written:
    """A writer, and how many bytes it and the TLS below have not sent yet."""

    def __init__(self, above: int = 0, below: int = 0) -> None:
        self.bytes: list[bytes] = []
        self.above, self.below = above, below
        self.transport = SimpleNamespace(get_write_buffer_size=lambda: self.above)
        self.tls: Any = SimpleNamespace(_transport=SimpleNamespace(get_write_buffer_size=lambda: self.below))

    def write(self, data: bytes) -> None:
        self.bytes.append(data)

    async def drain(self) -> None:
        await asyncio.sleep(0)


def writing(writer: Written, *, secure: bool) -> MemoryConnection:
    connection = MemoryConnection()
    connection._writer = writer
    connection._below = writer.tls if secure else None
    return connection


@pytest.mark.parametrize(
    ("secure", "above", "below", "drained"),
    [
        (False, 0, 0, True),
        (False, 1, 0, False),
        (True, 0, 0, True),
        (True, 1, 0, False),
        (True, 0, 1, False),
    ],
)
async def test_all_has_left_once_no_buffer_has_any(secure: bool, above: int, below: int, drained: bool) -> None:
    assert writing(Written(above, below), secure=secure).is_drained == drained


async def test_nothing_is_left_of_tls_whose_connection_is_lost() -> None:
    writer = Written()
    writer.tls._transport = None

    assert writing(writer, secure=True).is_drained


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_draining_ends_soon_after_the_buffers_are_empty(secure: bool) -> None:
    async def drain() -> float:
        writer = Written(0 if secure else 1, 1 if secure else 0)
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, setattr, writer, "below" if secure else "above", 0)
        await writing(writer, secure=secure).drained()
        return loop.time()

    assert 0.1 <= virtual_time.run(drain()) < 0.11


def test_an_idle_connection_is_kept_by_empty_frames_before_half_its_timeout_has_passed() -> None:
    async def keep() -> None:
        writer = Written()
        connection = writing(writer, secure=False)
        connection._sdk._remote_idle_timeout = 10.0
        connection.write(b"something")
        await asyncio.sleep(4)
        connection.keep_alive()
        assert writer.bytes == [b"something"]
        await asyncio.sleep(0.5)
        connection.keep_alive()
        # It was written just now.
        connection.keep_alive()
        assert writer.bytes == [b"something", EMPTY]

        connection._sdk._remote_idle_timeout = None
        await asyncio.sleep(1_000)
        connection.keep_alive()
        assert len(writer.bytes) == 2

    virtual_time.run(keep())


def test_a_token_has_half_a_minute_to_be_renewed() -> None:
    answers: list[bool | float] = []

    async def handle_token() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, bool):
            return answer
        await asyncio.sleep(answer)
        return True

    async def renew() -> None:
        connection = MemoryConnection()
        connection._handler = SimpleNamespace(_cbs_authenticator=SimpleNamespace(handle_token=handle_token))
        connection._renewing_since = None

        async def look(answer: bool | float) -> None:
            answers.append(answer)
            await sdk.Connection.renew(connection)

        for _ in range(2):
            await look(False)
            await asyncio.sleep(30)
            await look(False)
            await look(True)
            await asyncio.sleep(1)
        await look(False)
        await asyncio.sleep(30.5)
        with pytest.raises(RetryableError, match="was not renewed within 30 s"):
            await look(False)

        await look(29.5)
        with pytest.raises(RetryableError, match="was not renewed within 30 s"):
            await look(30.5)

    virtual_time.run(renew())


def test_an_end_without_an_error_has_no_error() -> None:
    assert [read(None) for read in (sdk.refused, sdk.link_lost, sdk.connection_lost)] == [None] * 3


def test_an_error_may_have_its_condition_alone() -> None:
    lost = sdk.link_lost([b"amqp:link:detach-forced"])

    assert isinstance(lost, RetryableError)
    assert "amqp:link:detach-forced" in str(lost)
