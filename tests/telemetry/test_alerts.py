"""Each alert fires in its failure and in no other case: the deployed rules on rows of the real exporter."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.infra.deployment import Resource
from tests.infra.workspace import Row, Rows
from tests.support.broker import set_topic_status
from tests.support.outbox import event, events
from tests.telemetry import alerting
from tests.telemetry.alerting import OUTBOX
from tests.telemetry.conftest import WorkerMaker
from tests.telemetry.ingestion import Ingestion
from tests.telemetry.process import QUICKLY, WorkerProcess
from tests.telemetry.tables import ago, merged, moved, rows_of

# One process translates the queries and imports the exporter for all of a group.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("queries")]

DAYS = 86_400
# Of an app that has just been deployed: no resource has written into its own tables yet.
NEW = frozenset({"AppExceptions", "CDBDataPlaneRequests5M", "FunctionAppLogs"})


ROUTES = """
[destinations.orders]
topic = "orders"

[[routes]]
to = ["default", "orders"]
"""


def alarms(
    rows: Rows, *, missing: frozenset[str] = frozenset(), rules: dict[str, Resource] | None = None
) -> dict[str, set[tuple[Any, ...]]]:
    """The alerts that fire, where the app's timer reports each minute that nothing waits: test_age_alerts.py."""
    report = {"TimeGenerated": ago(minutes=1), "Name": "relay.feed.age", "Sum": 0.0, "Properties": {"lease": "0"}}
    return alerting.alarms(merged(rows, {"AppMetrics": [report]}), missing=missing, rules=rules)


def now_committed(
    documents: list[dict[str, Any]], *, age_s: int = 0, ttl: int = 10 * DAYS
) -> list[dict[str, Any]]:
    return [document | {"_ts": int(time.time()) - age_s, "ttl": ttl} for document in documents]


def fresh(name: str, count: int = 3) -> list[dict[str, Any]]:
    return now_committed(events(name, count))


def outbox_writes(minutes_ago: float) -> Row:
    """Return a row with which Cosmos DB sums up five minutes of writes."""
    return {
        "TimeGenerated": ago(minutes=minutes_ago),
        "CollectionName": OUTBOX,
        "OperationName": "Batch",
        "StatusCode": 200,
    }


def host_log(level: str, message: str, category: str = "Host.General", **columns: Any) -> Row:
    """Return a row that the Functions host writes."""
    at = {"TimeGenerated": ago(minutes=1), "Level": level, "Category": category, "Message": message}
    return at | columns


async def exported(process: WorkerProcess, ingestion: Ingestion) -> dict[str, list[Row]]:
    """The rows of everything that the process exports."""
    await process.ask(flush=True)
    return rows_of(ingestion.envelopes)


def every_minute(rows: Rows, minutes: int = 60) -> dict[str, list[Row]]:
    """One minute's exports, in each minute of the last hour."""
    return merged(*(moved(rows, minutes=-ago_min) for ago_min in range(minutes)))


async def test_a_healthy_hour_is_silent(worker: WorkerMaker, ingestion: Ingestion) -> None:
    # The exporter's own sampler may leave out all of them, as they end so quickly.
    async with worker(OTEL_TRACES_SAMPLER="always_on") as process:
        for number in range(5):
            await process.handle([*fresh(f"k{number}"), {"type": "contact"}], f"i{number}")
        a_minute = await exported(process, ingestion)

    hour = every_minute(a_minute) | {
        "CDBDataPlaneRequests5M": [outbox_writes(minutes) for minutes in range(0, 60, 5)],
        "FunctionAppLogs": [host_log("Information", "Executed 'Functions.relay' (Succeeded)")],
    }
    assert {"AppMetrics", "AppTraces", "AppDependencies"} <= hour.keys()
    assert alarms(hour) == alarms(hour, missing=NEW) == {}


async def test_an_idle_hour_is_silent(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker() as process:
        a_minute = await exported(process, ingestion)

    hour = every_minute(a_minute) | {"FunctionAppLogs": [host_log("Information", "Host lock lease acquired")]}
    assert alarms(hour) == alarms(hour, missing=NEW) == {}


async def test_an_hour_after_work_is_silent(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker() as process:
        await process.handle(fresh("a"))
        worked = await exported(process, ingestion)

    for minutes in (1, 20):
        assert alarms(moved(worked, minutes=-minutes)) == {}


async def test_a_lag_of_an_hour_raises_an_alert(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker() as process:
        await process.handle([*fresh("a"), *now_committed(events("late", 1), age_s=3600)])
        rows = await exported(process, ingestion)

    assert alarms(rows).keys() == {"lag"}
    assert alarms(moved(rows, minutes=-16)) == {}


async def test_an_outage_raises_alerts_after_some_attempts_and_before_events_expire(
    worker: WorkerMaker, ingestion: Ingestion, servicebus: ServiceBusServer
) -> None:
    await set_topic_status(servicebus.admin_port, "SendDisabled")
    async with worker(**QUICKLY) as process:
        for attempt in range(5):
            await process.handle(fresh("a"), "i1", attempt)
        five_attempts = await exported(process, ingestion)
        await process.handle(now_committed(events("a", 3), ttl=DAYS // 2), "i1", 5)
        await process.ask(flush=True)
        rows = rows_of(ingestion.envelopes)

    assert alarms(five_attempts) == {}
    assert alarms(rows) == {"failing": {("ConfigurationError",)}, "ttl-headroom": {()}}


async def test_what_a_killed_process_put_into_quarantine_raises_an_alert(
    worker: WorkerMaker, ingestion: Ingestion
) -> None:
    """With the exporter's own intervals: metrics once a minute, so that none of this process ever comes."""
    async with worker() as process:
        await process.handle([*fresh("a"), event("x", "a") | {"data": 7}], "i1")
        await ingestion.until(lambda arrived: "quarantine" in actions(rows_of(arrived)))
        await process.kill()
        rows = rows_of(ingestion.envelopes)
        async with worker(**QUICKLY) as successor:
            ingestion.forget()
            await successor.handle(fresh("b"), "i2")
            later = await exported(successor, ingestion)

    counted = [row["Name"] for row in merged(rows, later)["AppMetrics"]]
    assert "relay.events.quarantined" not in counted
    assert alarms(rows) == alarms(merged(rows, later)) == {"quarantine": {("data-not-object",)}}


def actions(rows: Rows) -> list[str]:
    return [row["Properties"].get("action", "") for row in rows.get("AppTraces", [])]


async def test_an_app_that_stops_after_a_failed_attempt_raises_an_alert(
    worker: WorkerMaker, ingestion: Ingestion, servicebus: ServiceBusServer
) -> None:
    async with worker(**QUICKLY) as process:
        await process.handle(fresh("a"), "i1")
        await set_topic_status(servicebus.admin_port, "SendDisabled")
        await process.handle(fresh("b"), "i2")
        failed = await exported(process, ingestion)
    await set_topic_status(servicebus.admin_port, "Active")
    ingestion.forget()
    async with worker(**QUICKLY) as successor:
        await successor.handle(fresh("b"), "i3")
        recovered = await exported(successor, ingestion)

    stopped = moved(failed, minutes=-20)
    assert alarms(stopped) == {"silent": {("the last attempt failed, and none came after it",)}}
    assert alarms(merged(stopped, moved(recovered, minutes=-18))) == {}


async def test_one_sick_stream_among_healthy_ones_raises_alerts_that_name_it(
    worker: WorkerMaker, ingestion: Ingestion, cosmos: CosmosServer, tmp_path: Path
) -> None:
    """The topic of the stream `orders` does not exist."""
    provision(cosmos.account, [ContainerSpec.parse(f"{DATABASE}/quarantine-orders:/partitionKey")])
    (tmp_path / "relay.toml").write_text(ROUTES)
    async with worker(RELAY_FILE=str(tmp_path / "relay.toml"), **QUICKLY) as process:
        for attempt in range(6):
            await process.handle(fresh("a"), "i1", attempt, stream="orders")
        sick = await exported(process, ingestion)
        ingestion.forget()
        await process.handle([*fresh("b"), event("x", "b") | {"data": 7}], "i2")
        sound = of_stream(await exported(process, ingestion), None)
    rules, failed = alerting.log_rules_of_streams("orders"), ("the last attempt failed, and none came after it",)
    written = {"CDBDataPlaneRequests5M": [outbox_writes(minutes) for minutes in (20, 15, 12)]}
    quarantined = {"quarantine": {("data-not-object", "default")}}

    both = merged(sick, sound)
    assert alarms(both, rules=rules) == {"failing": {("ConfigurationError", "orders")}, **quarantined}
    assert alarms(both) == {"failing": {("ConfigurationError",)}, "quarantine": {("data-not-object",)}}
    # The stream has stopped, and the other one goes on.
    stopped = merged(moved(of_stream(sick, "orders"), minutes=-20), sound)
    assert alarms(stopped, rules=rules) == {"silent": {(*failed, "orders")}, **quarantined}
    # It never received anything, of an outbox that both read.
    assert alarms(merged(sound, written), rules=rules) == {
        "silent": {("the outbox is written to", "orders")},
        **quarantined,
    }


def of_stream(rows: Rows, name: str | None) -> dict[str, list[Row]]:
    """Return the rows that a stream has reported; None for `default`."""
    return {
        table: [row for row in found if row.get("Properties", {}).get("stream") == name]
        for table, found in rows.items()
    }


async def test_an_outbox_that_is_written_to_while_nothing_is_received_raises_an_alert(
    worker: WorkerMaker, ingestion: Ingestion
) -> None:
    async with worker() as process:
        idle = await exported(process, ingestion)
        await process.handle(fresh("a"))
        working = await exported(process, ingestion)

    written = {"CDBDataPlaneRequests5M": [outbox_writes(minutes) for minutes in (20, 15, 12)]}
    assert alarms(merged(idle, written)) == {"silent": {("the outbox is written to",)}}
    assert alarms(merged(moved(working, minutes=-11), written)) == {}


async def test_a_host_that_only_reports_errors_raises_an_alert(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker() as process:
        idle = await exported(process, ingestion)
        await process.handle(fresh("a"))
        working = await exported(process, ingestion)

    broken = {
        "FunctionAppLogs": [host_log("Error", "The listener for function 'Functions.relay' was unable to start.")]
    }
    assert alarms(merged(idle, broken)) == {"silent": {("the Functions host reports errors",)}}
    assert alarms(merged(working, broken)) == {}


@pytest.mark.parametrize("table", ["FunctionAppLogs", "AppTraces", "AppExceptions"])
async def test_a_document_that_the_host_cannot_hand_over_raises_an_alert(table: str) -> None:
    """The warning is that of the trigger extension's CosmosDBTriggerHealthMonitor, seen once in 13 seconds."""
    says = "Lease 3 encountered an unhandled user exception during processing."
    why = "Newtonsoft.Json: The reader's MaxDepth of 64 has been exceeded."
    warning = host_log("Warning", says, "Host.Triggers.CosmosDB", ExceptionMessage=why)
    warning |= {"OuterMessage": says, "InnermostMessage": why, "Properties": {}}
    every_13_s: Rows = {table: [warning | {"TimeGenerated": ago(seconds=13 * n)} for n in range(60)]}
    stopping: Rows = {table: [warning | {"TimeGenerated": ago(minutes=n)} for n in (1, 3, 9)]}

    assert alarms(every_13_s, missing=NEW - {table}) == {"undelivered": {("3",)}}
    assert alarms(stopping) == {}
    assert alarms(moved(every_13_s, minutes=-16)) == {}


def test_a_workspace_that_has_reached_its_daily_quota_raises_an_alert() -> None:
    """The row is that of https://learn.microsoft.com/azure/azure-monitor/logs/daily-cap."""
    said = {
        "TimeGenerated": ago(minutes=2),
        "Category": "Ingestion",
        "Operation": "Data collection stopped",
        "Level": "Warning",
        "Detail": "The data ingestion has stopped. Status of subscription is OverQuota.",
    }
    other = said | {
        "Operation": "Ingestion rate",
        "Detail": "The data ingestion volume rate crossed the threshold",
    }

    assert alarms({"_LogOperation": [said]}) == {"quota": {()}}
    assert alarms({"_LogOperation": [other]}) == {}
    assert alarms(moved({"_LogOperation": [said]}, minutes=-16)) == {}
