"""Recorded requests of the .NET SDK get the replies that it accepted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import ManualClock, RawClient
from packages.emulators.tests.cosmos.groundwork import Groundwork, RecordedRandomness
from packages.emulators.tests.cosmos.recordings import Exchange, load, physical_partitions
from packages.emulators.tests.cosmos.replay import Replay

# Requests for documents that no exchange shows, or behind a page that was not recorded; one batch with a
# read that found nothing new, which the recorded emulator answered with 200, and the service does with 207; what
# the recorded emulator refused, and the service takes: raw control characters, an id with a slash, GROUP BY; and a
# replacement of what is not there with another key in the body, which the service answers with 404.
UNSHOWN = {
    "item": [10, 38, 40, 46, *range(59, 68)],
    "query": [29, 30, 31, 32, 44, 46, 47, 53],
    "batch": [8, 34, 36, 37, 82],
    "bulk": [17, 18, 19],
}


@asynccontextmanager
async def replaying(exchanges: list[Exchange], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replay]:
    clock = ManualClock(0)
    partitions = physical_partitions(exchanges)
    async with (
        CosmosServer(clock=clock, physical_partitions=partitions, edges=None) as server,
        aiohttp.ClientSession() as session,
    ):
        client = RawClient(session, server.endpoint, server.key, is_stranger=True)
        yield Replay(Groundwork(exchanges, server, clock, RecordedRandomness(monkeypatch)), client)


def unanswerable(exchange: Exchange, name: str) -> bool:
    """Also those whose body was not kept whole."""
    return not exchange.is_whole or exchange.number in UNSHOWN.get(name, ())


@pytest.mark.parametrize("name", ["processor", "feed", "item", "patch", "query", "batch", "bulk"])
async def test_each_recorded_request_is_answered_as_the_sdk_accepted_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanges = load(name)
    found: list[str] = []
    async with replaying(exchanges, monkeypatch) as replay:
        for exchange in exchanges:
            if unanswerable(exchange, name):
                continue
            answer = await replay.send(exchange)
            request = f"{exchange.number} {exchange.method} {exchange.path}"
            found += [f"{request}: {difference}" for difference in replay.differences(exchange, answer)]

    assert not found, "\n".join(found)
