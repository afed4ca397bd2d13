"""The alerts of an outbox in SQL, on what a worker exports that runs as it does in a container."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest

from outbox_relay.changefeed.statements import Statement
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.infra.workspace import Row, Rows
from tests.support.broker import set_topic_status, topic_counts
from tests.support.outbox import event
from tests.support.sql_outbox import SqlOutbox, provisioned
from tests.support.watchdog import WATCHDOG_S
from tests.telemetry.alerting import alarms, sql_log_rules
from tests.telemetry.ingestion import Ingestion
from tests.telemetry.nursery import ROOT
from tests.telemetry.process import QUICKLY
from tests.telemetry.tables import merged, moved, rows_of

# One process translates the queries for all of a group.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("queries")]

SHARDS = 2
# Between two attempts at a page lies a minute at most.


@pytest.fixture
async def outbox(postgres_database: str) -> AsyncIterator[SqlOutbox]:
    session = await provisioned(postgres_database)
    # One event has waited for an hour.
    written = SqlOutbox(session)
    await written.commit(event("old", "k"), shard_id=1)
    await session.execute(
        Statement(
            'update changefeed."outbox:outbox.domain_event" set time_hint = now() - make_interval(hours => 1)'
        )
    )
    yield written
    await session.close()


@pytest.fixture
async def worker(
    postgres_database: str, outbox: SqlOutbox, servicebus: ServiceBusServer, ingestion: Ingestion
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m relay run` as the container runs it, on a topic that refuses messages."""
    await set_topic_status(servicebus.admin_port, "SendDisabled")
    environment = os.environ | {
        "SQL": postgres_database,
        "SQL_SHARDS": str(SHARDS),
        "SERVICEBUS": servicebus.connection_string,
        "APPLICATIONINSIGHTS_CONNECTION_STRING": ingestion.connection_string,
        "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
        "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED": "true",
        **QUICKLY,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay", "run"), cwd=ROOT, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    yield process
    if process.returncode is None:
        process.kill()
        await process.wait()


def ages(rows: Rows) -> dict[str, float]:
    """The last age of each shard."""
    return {
        row["Properties"]["shard"]: row["Sum"]
        for row in rows.get("AppMetrics", [])
        if row["Name"] == "relay.feed.age"
    }


async def exported(ingestion: Ingestion, *, oldest_s: tuple[float, float]) -> dict[str, list[Row]]:
    """The rows since the last look, once every shard is reported and the oldest age is within these bounds."""
    ingestion.forget()
    least, most = oldest_s

    def arrived() -> bool:
        found = ages(rows_of(ingestion.envelopes))
        return len(found) == SHARDS and least <= max(found.values()) <= most

    async with asyncio.timeout(WATCHDOG_S):
        while not arrived():
            await asyncio.sleep(0.1)
    return rows_of(ingestion.envelopes)


async def test_alerts_tell_of_events_that_wait_and_of_shards_without_a_reader(
    worker: asyncio.subprocess.Process, servicebus: ServiceBusServer, ingestion: Ingestion
) -> None:
    rules = sql_log_rules(SHARDS)
    waiting = await exported(ingestion, oldest_s=(3600, 4000))
    fired = alarms(waiting, rules=rules)
    await set_topic_status(servicebus.admin_port, "Active")
    async with asyncio.timeout(WATCHDOG_S):
        while (await topic_counts(servicebus.admin_port))["accepted"] < 1:
            await asyncio.sleep(0.1)
    healthy = await exported(ingestion, oldest_s=(0, 60))
    worker.terminate()
    assert await asyncio.wait_for(worker.wait(), WATCHDOG_S) == 0
    idle = {"AppMetrics": [row for row in healthy["AppMetrics"] if row["Name"] == "relay.feed.age"]}
    idle["AppMetrics"] = idle["AppMetrics"][-SHARDS:]
    hour = merged(*(moved(idle, minutes=-minutes) for minutes in range(60)))

    assert fired["unpublished"] == {("shard 1",)}
    assert "unowned" not in fired
    assert alarms(hour, rules=rules) == {}
    # The last report of any replica was eleven minutes ago; one shard was never reported; nothing was.
    assert alarms(moved(hour, minutes=-11), rules=rules) == {"unowned": {()}}
    assert alarms(hour, rules=sql_log_rules(SHARDS + 1)) == {"unowned": {()}}
    assert alarms({}, rules=rules) == {"unowned": {()}}
