"""The health of a worker, and how its probes answer."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import aiohttp
import pytest

from outbox_relay.operator.cli.probes import CONNECTIONS, serving_probes
from relay.core.errors import UsageError
from relay.core.health import Health

LONG_S = 1000.0


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(10.0, clock)


def test_a_worker_is_ready_when_it_has_read_the_claims(health: Health) -> None:
    assert (health.stalled(), health.unready()) == (None, "the claims have not been read yet")

    health.round_ended(claims_read=True)

    assert (health.stalled(), health.unready()) == (None, None)


def test_an_outage_of_the_database_makes_it_unready_and_is_no_reason_to_restart(
    health: Health, clock: Clock
) -> None:
    health.round_ended(claims_read=True)
    clock.now_s += LONG_S
    health.round_ended(claims_read=False)

    assert health.stalled() is None
    assert health.unready() == "the claims were last read 1000 s ago"


def test_a_worker_whose_rounds_do_not_end_is_to_be_restarted(health: Health, clock: Clock) -> None:
    health.round_ended(claims_read=True)
    # Connecting and asking for a token may take a minute each.
    clock.now_s += 120.0
    assert health.stalled() is None

    clock.now_s += LONG_S

    assert health.stalled() == "no look at the claims has ended for 1120 s"


async def test_the_probes_answer_with_the_reason(health: Health, clock: Clock) -> None:
    async with serving_probes([health], 0) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

        async def answer(path: str) -> tuple[int, str]:
            async with client.get(path) as response:
                return response.status, await response.text()

        before = [await answer("/livez"), await answer("/readyz")]
        health.round_ended(claims_read=True)
        working = [await answer("/livez"), await answer("/readyz")]
        clock.now_s += LONG_S
        hanging = [await answer("/livez"), await answer("/readyz")]

    assert before == [(200, "ok\n"), (503, "the claims have not been read yet\n")]
    assert working == [(200, "ok\n"), (200, "ok\n")]
    assert [status for status, _ in hanging] == [503, 503]
    assert "1000 s" in hanging[0][1]


async def test_a_port_in_use_is_named_with_its_option(health: Health) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(UsageError, match=rf"port {port} cannot be listened on .*--health-port"):
            async with serving_probes([health], port):
                pass


async def until_closed(reader: asyncio.StreamReader) -> None:
    """Return when the server has closed a connection without an answer; it may not have read all that was sent."""
    with suppress(ConnectionResetError):
        assert await reader.read() == b""


async def test_half_sent_requests_hold_up_no_probe(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    # Their time does not end within the test.
    monkeypatch.setattr("outbox_relay.operator.cli.probes.HEAD_TIMEOUT_S", 3600.0)
    async with serving_probes([health], 0) as port, aiohttp.ClientSession() as http:
        halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * CONNECTIONS)]
        for _, writer in halves:
            writer.write(b"GET /livez HTTP/1.1\r\nX: ")
        async with http.get(f"http://127.0.0.1:{port}/livez") as answer:
            status = answer.status
        # The oldest were closed for the later ones.
        for reader, _ in halves[: 2 * CONNECTIONS]:
            await until_closed(reader)
        for _, writer in halves:
            writer.close()

    assert status == 200


async def test_a_head_that_does_not_end_in_time_or_is_too_long_is_given_up(
    health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.cli.probes.HEAD_TIMEOUT_S", 0.01)
    async with serving_probes([health], 0) as port:
        reader, slow = await asyncio.open_connection("127.0.0.1", port)
        slow.write(b"GET /livez HTTP/1.1\r\n")
        await until_closed(reader)
        slow.close()
    monkeypatch.setattr("outbox_relay.operator.cli.probes.HEAD_TIMEOUT_S", 3600.0)
    async with serving_probes([health], 0) as port:
        reader, long = await asyncio.open_connection("127.0.0.1", port)
        long.write(b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 4000)
        await until_closed(reader)
        long.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET /livez?verbose", 200), ("HEAD /livez", 200), ("POST /livez", 405), ("GET /", 404), ("nonsense", 404)],
)
async def test_other_requests_are_answered_too(health: Health, request_line: str, status: int) -> None:
    async with serving_probes([health], 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{request_line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()

    head, _, body = answer.partition("\r\n\r\n")
    assert head.split()[1] == str(status)
    assert ("Connection: close" in head, bool(body)) == (True, not request_line.startswith("HEAD"))
