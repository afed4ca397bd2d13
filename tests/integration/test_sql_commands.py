"""`python -m relay install` and `python -m relay run`, as separate processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from outbox_relay.changefeed import AsyncConsumer, AsyncSession, connect_async
from outbox_relay.changefeed.statements import Statement
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import CONSUMER
from tests.support.broker import topic_counts
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, SqlOutbox
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
_SHARDS = 4

StartWorker = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
def environment(postgres_database: str, servicebus: ServiceBusServer) -> dict[str, str]:
    return {
        **os.environ,
        "SQL": postgres_database,
        "SQL_SHARDS": str(_SHARDS),
        "SQL_CLAIM_S": "3",
        "SERVICEBUS": servicebus.connection_string,
        "RELAY_SENDERS": "4",
    }


async def command(environment: dict[str, str], *words: str) -> tuple[int | None, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay", *words, "--json"),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), WATCHDOG_S)
    return process.returncode, json.loads(output)


@pytest.fixture
async def start_worker(environment: dict[str, str]) -> AsyncIterator[StartWorker]:
    """Starts workers, and kills those that still run after the test."""
    started: list[asyncio.subprocess.Process] = []

    async def start(*options: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "relay", "run", *options),
            cwd=ROOT,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), WATCHDOG_S)
        assert b"has started" in line
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_install_makes_what_is_missing_and_nothing_twice(environment: dict[str, str]) -> None:
    code, result = await command(environment, "install", "--create-table", "--no-roles", "--keep", "30d")

    assert (code, result["done"]) == (
        0,
        [
            *[each for each in result["done"] if each.startswith("applied")],
            f"made the table {TABLE}",
            f"set up the feed of {TABLE}",
        ],
    )
    assert (await command(environment, "install", "--create-table", "--no-roles", "--keep", "30d"))[1][
        "done"
    ] == []


async def test_a_database_that_cannot_be_reached_is_an_error_without_its_password(
    environment: dict[str, str],
) -> None:
    code, result = await command(
        environment | {"SQL": "postgresql://relay:hidden@127.0.0.1:1/shop"}, "install", "--keep", "30d"
    )

    assert code == 3
    assert "cannot be reached" in result["error"]
    assert "hidden" not in json.dumps(result)


async def test_a_worker_answers_probes_and_is_ready_only_with_its_database(
    environment: dict[str, str], start_worker: StartWorker
) -> None:
    await command(environment, "install", "--create-table", "--no-roles", "--keep", "30d")
    with_database = await start_worker("--health-port", "0")
    environment["SQL"] = "postgresql://relay@127.0.0.1:1/shop"
    without = await start_worker("--health-port", "0")

    async with asyncio.timeout(WATCHDOG_S):
        await answered(with_database, readyz=200, livez=200)
        await answered(without, readyz=503, livez=200)
    for worker in (with_database, without):
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), WATCHDOG_S) == 0


async def answered(worker: asyncio.subprocess.Process, **expected: int) -> None:
    """Return when both probes of a worker that has just started answer with these codes."""
    assert worker.stdout is not None
    port = int((await worker.stdout.readline()).split()[-1])
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        for probe, status in expected.items():
            while True:
                async with client.get(f"/{probe}") as response:
                    if response.status == status:
                        break
                await asyncio.sleep(0.05)


async def test_one_of_two_workers_is_killed_and_the_other_carries_on(
    environment: dict[str, str], servicebus: ServiceBusServer, start_worker: StartWorker
) -> None:
    await command(environment, "install", "--create-table", "--no-roles", "--keep", "30d")
    session = await connect_async(environment["SQL"])
    outbox = SqlOutbox(session)
    one, two = await start_worker(), await start_worker()
    await _until_shared(session)
    for number in range(40):
        await outbox.commit(event(f"a{number}", f"k{number % 8}"), shard_id=number % _SHARDS)
    one.kill()
    await one.wait()
    for number in range(40):
        await outbox.commit(event(f"b{number}", f"k{number % 8}"), shard_id=number % _SHARDS)

    async with asyncio.timeout(WATCHDOG_S):
        while (await topic_counts(servicebus.admin_port))["accepted"] < 80:
            await asyncio.sleep(0.1)
    two.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WATCHDOG_S):
        assert await two.wait() == 0

    claims = await AsyncConsumer(session, TABLE, CONSUMER).claims(range(_SHARDS))
    assert [claim.owner for claim in claims] == [None] * _SHARDS
    waiting = await session.execute(Statement('select count(*) from changefeed."outbox:outbox.domain_event"'))
    assert waiting.rows[0][0] == 0
    await session.close()


async def _until_shared(session: AsyncSession) -> None:
    """Wait until both workers have half of the shards."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            claims = await AsyncConsumer(session, TABLE, CONSUMER).claims(range(_SHARDS))
            owners = [claim.owner for claim in claims]
            if None not in owners and sorted(owners.count(owner) for owner in set(owners)) == [2, 2]:
                return
            await asyncio.sleep(0.1)
