"""The deployed app on an SQL outbox: its timer in the Functions host, with a worker process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from local.stack.parts import ROOT
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.sql_deployment import TABLE, SqlDeployment
from tests.support.subscriber import received
from tests.support.watchdog import WATCHDOG_S


def host_on(sql: SqlDeployment, servicebus: ServiceBusServer, storage: Path) -> Host:
    settings = {
        "SQL": sql.url,
        "SQL_FEED": TABLE,
        "SERVICEBUS": servicebus.connection_string,
    }
    return Host(ROOT, settings, storage=storage, separate_worker=True, shutdown_timeout_s=0.1)


async def test_the_timer_publishes_what_is_there_and_what_comes_during_a_tick(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    sql.create()
    sql.named("e1", "e2")
    host = host_on(sql, servicebus, tmp_path)
    try:
        async with asyncio.timeout(WATCHDOG_S):
            await host.start()
            await sql.until_passed()
            sql.named("e3")
            await sql.until_passed()
        (function,) = host.status()["functions"]
    finally:
        await host.stop()

    assert (function["name"], function["invocations"], function["failures"]) == ("relay_sql", 1, 0)
    subscriber = await received(servicebus.connection_string, 3, receivers=1)
    assert subscriber.ids() == {"k": ["e1", "e2", "e3"]}
