"""The alerts on how long changes wait: one lease that is stuck among others, and an app that does not look."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.host import Host
from tests.infra.project import ROOT
from tests.infra.workspace import Row, Rows, Workspace
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.watchdog import WATCHDOG_S
from tests.telemetry.alerting import alarms
from tests.telemetry.conftest import WorkerMaker
from tests.telemetry.ingestion import Ingestion
from tests.telemetry.tables import ago, merged, moved, rows_of

# One process translates the queries and imports the exporter for all of a group.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("queries")]

KEYS = [f"key-{number}" for number in range(20)]
SLOW_S = 600
# Of an app that has just been deployed: no resource has written into its own tables yet.
NEW = frozenset({"AppExceptions", "FunctionAppLogs"})

NO_FUNCTIONS = "No job functions found. Try making your job classes and methods public."
SETTINGS = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA",
}
NO_REASON = "the host names no reason: the app is stopped, or telemetry does not arrive"


@pytest.fixture
async def cosmos() -> AsyncIterator[CosmosServer]:
    """An account whose clock is ten minutes slow: whatever waits there has waited for that long."""
    async with CosmosServer(clock=lambda: time.time() - SLOW_S) as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield server


@pytest.fixture
async def trigger(cosmos: CosmosServer) -> AsyncIterator[TriggerLeases]:
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        yield TriggerLeases(client)


def ages(rows: Rows) -> dict[str, float]:
    """The reported age of each lease."""
    reports = (row for row in rows.get("AppMetrics", []) if row["Name"] == "relay.feed.age")
    return {row["Properties"]["lease"]: row["Sum"] for row in reports}


async def test_one_stuck_lease_among_several_raises_an_alert(
    worker: WorkerMaker, ingestion: Ingestion, trigger: TriggerLeases
) -> None:
    for key in KEYS:
        await trigger.data.create_item(event(f"early-{key}", key))
    await trigger.pass_all()
    await trigger.data.create_item(event("stuck", KEYS[0]))
    async with worker() as process:
        await process.ask(look=True)
        await process.ask(flush=True)
        waiting = rows_of(ingestion.envelopes)
        await trigger.pass_all()
        ingestion.forget()
        await process.ask(look=True)
        await process.ask(flush=True)
        passed = rows_of(ingestion.envelopes)

    stuck = {lease for lease, age_s in ages(waiting).items() if age_s >= SLOW_S}
    assert (len(stuck), len(ages(waiting))) == (1, 4)
    assert alarms(waiting) == alarms(waiting, missing=NEW) == {"unpublished": {(f"lease {stuck.pop()}",)}}
    assert ages(passed) == dict.fromkeys(ages(waiting), 0.0)
    assert alarms(passed) == {}
    # The last report of any instance.
    assert alarms(moved(passed, minutes=-14)) == {}
    assert alarms(moved(passed, minutes=-16)) == {"unloaded": {()}}


def said(table: str, text: str, why: str = "", *, minutes_ago: float = 16) -> Rows:
    """A line of the host, in one of the tables that it reaches."""
    line: Row = {"TimeGenerated": ago(minutes=minutes_ago), "Properties": {}}
    line |= {"Message": text, "ExceptionMessage": why, "OuterMessage": text, "InnermostMessage": why}
    return {table: [line]}


@pytest.mark.parametrize("table", ["FunctionAppLogs", "AppTraces", "AppExceptions"])
def test_a_line_is_found_in_each_table_that_it_may_reach(table: str) -> None:
    text, why = "Worker failed to index functions", "relay.core.errors.SettingsError: 1 setting(s) to put right"
    rows = merged(said(table, text, why), said("FunctionAppLogs", NO_FUNCTIONS, minutes_ago=15.9))
    missing = frozenset(NEW - rows.keys())

    assert alarms(rows, missing=missing).keys() == {"unloaded"}
    [shown] = answers(rows, missing)
    assert shown["Says"].startswith(text)
    assert (why in shown["Says"]) is (table != "AppTraces")


@pytest.mark.parametrize(
    ("is_slow", "reasons"),
    [
        (False, ["Worker failed to index functions", "ModuleNotFoundError: No module named 'missing'"]),
        (True, ["Initializing worker process failed", "TimeoutException"]),
    ],
    ids=["an incomplete package", "a slow worker"],
)
async def test_a_host_without_functions_raises_an_alert_that_says_why(
    is_slow: bool, reasons: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines are those of the emulated host, which has them from host 4.1037."""
    (tmp_path / "host.json").write_text((ROOT / "host.json").read_text())
    (tmp_path / "function_app.py").write_text("import missing")
    log = tmp_path / "exported.log"
    host = Host(tmp_path, {}, exported_log=log, worker_times_out=is_slow)
    with caplog.at_level(logging.INFO):
        await host.start()
        await host.stop()
    console = [said("FunctionAppLogs", record.getMessage(), minutes_ago=16) for record in caplog.records]
    exported = said("AppTraces", log.read_text(encoding="utf-8"))

    assert answers(merged(*console))[0]["Says"].startswith(NO_FUNCTIONS)
    assert alarms(merged(*console, exported)).keys() == {"unloaded"}
    [shown] = answers(merged(*console, exported))
    assert [reason for reason in reasons if reason not in shown["Says"]] == []


async def test_a_wrong_setting_raises_an_alert_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(ROOT, SETTINGS | {"RELAY_MAX_ITEMS": "many"})
    with caplog.at_level(logging.INFO):
        await host.start()
        async with asyncio.timeout(WATCHDOG_S):
            while "(Failed" not in caplog.text:
                await asyncio.sleep(0)
        await host.stop()
    console = [said("FunctionAppLogs", record.getMessage(), minutes_ago=16) for record in caplog.records]

    assert alarms(merged(*console)).keys() == {"unloaded"}
    [shown] = answers(merged(*console))
    assert "RELAY_MAX_ITEMS is 'many'" in shown["Says"]


def answers(rows: Rows, missing: frozenset[str] = frozenset()) -> list[Any]:
    """Return the answer of the query that the operator sees."""
    text = (ROOT / "infra" / "queries" / "unloaded.kql").read_text(encoding="utf-8")
    with Workspace(rows, missing=missing) as workspace:
        return workspace.query(text)


def test_an_app_without_a_report_and_without_a_line_raises_an_alert() -> None:
    assert alarms({}).keys() == alarms({}, missing=NEW).keys() == {"unloaded"}
    assert [row["Says"] for row in answers({})] == [NO_REASON]


def test_a_start_that_failed_and_was_repeated_is_silent() -> None:
    report = {"TimeGenerated": ago(minutes=2), "Name": "relay.feed.age", "Sum": 0.0, "Properties": {"lease": "0"}}

    assert alarms(merged(said("FunctionAppLogs", NO_FUNCTIONS), {"AppMetrics": [report]})) == {}
