"""Consumers that are killed anywhere: every effect once, in order, and nothing skipped.

`INBOX_KILLS=20 python -m pytest tests/integration/test_inbox_kills.py` kills that many in each store.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from itertools import cycle, islice

import psycopg
import pytest

from local.stack.parts import ROOT
from tests.support.inbox import broker
from tests.support.inbox_stores import cosmos_container
from tests.support.killed_consumer import ALL, MENDED, STATEMENT
from tests.support.waiting import look_again
from tests.support.watchdog import CAMPAIGN, WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

KILLS = int(os.environ.get("INBOX_KILLS", "2"))
KEYS = ("k0", "k1", "k2")

Effects = Callable[[], Awaitable[Sequence[tuple[str, str]]]]


@asynccontextmanager
async def sqlite(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Effects]]:
    path = str(request.getfixturevalue("tmp_path") / "store.sqlite")

    async def effects() -> Sequence[tuple[str, str]]:
        with closing(sqlite3.connect(path)) as database:
            rows: list[tuple[str, str]] = database.execute(ALL).fetchall()
        return rows

    yield path, effects


@asynccontextmanager
async def postgres(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Effects]]:
    url = request.getfixturevalue("postgres_database")

    async def effects() -> Sequence[tuple[str, str]]:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return await (await connection.execute(ALL)).fetchall()

    yield url, effects


@asynccontextmanager
async def cosmos(_: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Effects]]:
    async with cosmos_container() as (container, server):

        async def effects() -> Sequence[tuple[str, str]]:
            lists = container.query_items("SELECT * FROM c WHERE c.type = 'list'")
            return [(each["partitionKey"], identifier) async for each in lists for identifier in each["ids"]]

        yield server.connection_string, effects


PLACES: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[tuple[str, Effects]]]] = {
    "SQLite": sqlite,
    "PostgreSQL": postgres,
    "Cosmos DB": cosmos,
}


@asynccontextmanager
async def consumer(*arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "tests.support.killed_consumer", *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def by_key(effects: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    handled = defaultdict(list)
    for key, identifier in effects:
        handled[key].append(identifier)
    return handled


def every_one(number: int) -> dict[str, list[str]]:
    return {key: [f"{key}-{each}" for each in range(1, number + 1)] for key in KEYS}


@CAMPAIGN
@pytest.mark.parametrize("kind", PLACES)
async def test_consumers_that_are_killed_have_every_effect_once_and_in_order(
    kind: str, request: pytest.FixtureRequest
) -> None:
    rng, number = random.Random(KILLS), 2 * KILLS
    folder = request.getfixturevalue("tmp_path")
    async with (
        PLACES[kind](request) as (place, effects),
        broker(folder, MaxDeliveryCount=1000) as servicebus,
    ):
        servicebus.publish(*KEYS, count=number)
        again = 0
        for point in islice(cycle(("inside", "after")), KILLS):
            async with consumer(kind, place, servicebus.connection_string, point, rng.randint(1, 3)) as process:
                said, _ = await asyncio.wait_for(process.communicate(), WATCHDOG_S)
            assert process.returncode == -signal.SIGKILL
            again += said.count(b"again")
            await servicebus.expire_locks()
        async with consumer(kind, place, servicebus.connection_string, "never", 0) as process:
            await servicebus.until_empty()
            process.terminate()
            said, _ = await asyncio.wait_for(process.communicate(), WATCHDOG_S)

        assert process.returncode == 0
        assert by_key(await effects()) == every_one(number)
        # What was committed before a kill came again, and was skipped.
        assert again + said.count(b"again") >= KILLS // 2
        assert servicebus.dead() == []


@CAMPAIGN
@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
async def test_consumers_that_are_killed_while_they_park_keys_have_every_effect_once_and_in_order(
    kind: str, request: pytest.FixtureRequest
) -> None:
    rng, number = random.Random(KILLS), 5
    async with (
        PLACES[kind](request) as (place, effects),
        broker(request.getfixturevalue("tmp_path"), MaxDeliveryCount=1000) as servicebus,
    ):
        servicebus.publish(*KEYS, count=number)
        for _ in range(2 * KILLS):
            arguments = kind, place, servicebus.connection_string, STATEMENT, rng.randint(5, 60)
            async with consumer(*arguments) as process:
                await asyncio.wait_for(process.communicate(), WATCHDOG_S)
            assert process.returncode == -signal.SIGKILL
            await servicebus.expire_locks()
        async with consumer(kind, place, servicebus.connection_string, MENDED, 0) as process:
            async with asyncio.timeout(WATCHDOG_S):
                while by_key(await effects()) != every_one(number):
                    await look_again()
            await servicebus.until_empty()
            process.terminate()
            await asyncio.wait_for(process.communicate(), WATCHDOG_S)

        assert process.returncode == 0
        assert by_key(await effects()) == every_one(number)
        assert servicebus.dead() == []
