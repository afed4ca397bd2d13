"""The rows that the exporter sends: what operators need, how few they are, and what they never name."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

import pytest

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.telemetry import attempt
from tests.infra.workspace import Row
from tests.support.broker import set_topic_status
from tests.support.outbox import event, events
from tests.support.watchdog import WATCHDOG_S
from tests.telemetry.conftest import WorkerMaker
from tests.telemetry.ingestion import Envelope, Ingestion
from tests.telemetry.process import QUICKLY
from tests.telemetry.tables import rows_of

# One process imports the exporter for all of a group.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("exporter")]

# https://learn.microsoft.com/azure/azure-monitor/app/api-custom-events-metrics#limits
LONGEST_PROPERTY = 8192
EVERY_SPAN = {"OTEL_TRACES_SAMPLER": "always_on"}


def traced(count: int) -> list[Row]:
    """Events of as many requests."""
    return [
        event(f"e{n}", f"k{n % 7}") | {"traceparent": f"00-{n + 1:032x}-{n + 1:016x}-01"} for n in range(count)
    ]


async def test_the_links_of_a_backlogs_span_are_whole(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker(**EVERY_SPAN) as process:
        await process.handle(traced(300))
        await process.ask(flush=True)

    [span] = rows_of(ingestion.envelopes)["AppDependencies"]
    links = json.loads(span["Properties"]["_MS.links"])
    assert len(links) == attempt.MAX_LINKS
    assert {int(link["operation_Id"], 16) for link in links} <= set(range(1, 301))
    assert all(link["operation_Id"][-16:] == link["id"] for link in links)
    # The size of one link determines how many there may be.
    assert attempt.MAX_LINKS * (len(json.dumps(links[0])) + len(", ")) + len("[]") <= LONGEST_PROPERTY


async def test_the_spans_row_says_what_operators_need(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker(**EVERY_SPAN) as process:
        await process.handle([*traced(3), {"type": "contact"}, event("x", "a") | {"data": 7}], "i1", 2)
        await process.ask(flush=True)

    [span] = rows_of(ingestion.envelopes)["AppDependencies"]
    assert (span["Name"], span["DependencyType"], span["Success"]) == ("relay", "Queue Message | servicebus", True)
    said = {name: value for name, value in span["Properties"].items() if not name.startswith("_MS.")}
    assert said == {
        "faas.invocation_id": "i1",
        "relay.topic": "domain-events",
        "relay.retry_count": "2",
        "relay.documents.received": "5",
        "relay.documents.ignored": "1",
        "relay.events.received": "3",
        "relay.events.published": "3",
        "relay.events.quarantined": "1",
        "relay.partition_keys": "3",
        "relay.sends": "3",
    }


async def test_a_failed_attempts_exception_row_says_how_many_and_where_to_read_on(
    worker: WorkerMaker, ingestion: Ingestion, servicebus: ServiceBusServer
) -> None:
    await set_topic_status(servicebus.admin_port, "SendDisabled")
    async with worker(**EVERY_SPAN) as process:
        await process.handle(events("secret-key", 3, name="secret-name"), "i1")
        await process.ask(flush=True)

    rows = rows_of(ingestion.envelopes)
    [exception], [span] = rows["AppExceptions"], rows["AppDependencies"]
    assert (exception["ExceptionType"], exception["OuterMessage"]) == (
        "ConfigurationError",
        "3 event(s) of 1 partition key(s) not accepted, to be sent again. "
        "The log record with action relay_failed of this operation says why.",
    )
    assert span["Success"] is False
    [failure] = [row for row in rows["AppTraces"] if row["Properties"].get("action") == "relay_failed"]
    assert failure["OperationId"] == exception["OperationId"] == span["OperationId"]
    assert failure["ParentId"] == exception["ParentId"] == span["Id"]
    assert "Set the topic's status to Active" in failure["Message"]
    assert "secret" not in json.dumps(ingestion.envelopes)


async def test_attempts_in_a_row_add_no_log_rows(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker() as process:
        await process.ask(attempts=50, events=2)
        await process.ask(flush=True)

    rows = rows_of(ingestion.envelopes)
    said = [row["Properties"].get("action") for row in rows["AppTraces"]]
    assert [action for action in said if action is not None] == ["relay_batch"]
    counted: Counter[str] = Counter()
    for row in rows["AppMetrics"]:  # Several of a metric, if its export came in between.
        counted[row["Name"]] += row["Sum"]
    assert (counted["relay.events.published"], counted["relay.sends"]) == (100, 100)


async def test_ingestion_that_refuses_for_a_quota_costs_rows_but_no_attempt(
    worker: WorkerMaker, ingestion: Ingestion
) -> None:
    """Exports refused with 402 (439 in older services) are dropped for good; docs/telemetry.md says so."""
    ingestion.status = 402
    async with worker() as process:
        assert await process.handle(traced(5)) == {"published": 5}
        await process.ask(flush=True)
        ingestion.status = 200
        await process.handle(events("later", 2))
        await process.ask(flush=True)

    counted = [row["Sum"] for row in rows_of(ingestion.envelopes)["AppMetrics"] if row["Name"] == "relay.sends"]
    assert sum(counted) == 1


async def test_what_ingestion_refuses_for_now_is_sent_again(worker: WorkerMaker, ingestion: Ingestion) -> None:
    ingestion.status = 429
    async with worker() as process:
        assert await process.handle([event("x", "a") | {"data": 7}]) == {"published": 0}
        await process.ask(flush=True)
        ingestion.status = 200
        async with asyncio.timeout(WATCHDOG_S):
            while not any("quarantine" in json.dumps(envelope) for envelope in ingestion.envelopes):
                await process.handle(events("later", 1))
                await process.ask(flush=True)


# What the libraries log stays in the process: the real exporter sends what the relay says, and little when idle


# One process imports the exporter for all of a group.

EXPORTS_AN_HOUR = 60
IDLE_EXPORTS = 6
KEY = "partition-key-of-a-person"


def measured(envelope: Envelope) -> bool:
    """Return True if it is a metric's."""
    return bool(envelope["data"]["baseType"] == "MetricData")


def counters(envelopes: list[Envelope]) -> int:
    """Number of exports of metrics: each has this one once."""
    return json.dumps(envelopes).count("Available Bytes")


def size(envelopes: list[Envelope]) -> int:
    """Bytes of JSON."""
    return len(json.dumps(envelopes))


async def test_an_idle_hour_exports_less_than_a_megabyte(worker: WorkerMaker, ingestion: Ingestion) -> None:
    """Metrics are exported once a second here and once a minute in an hour; all else is counted by the second."""
    async with worker(**QUICKLY) as process:
        await process.handle(events("a", 3))
        await process.ask(flush=True)
        ingestion.forget()
        began = time.monotonic()
        idle = await ingestion.until(lambda arrived: counters(arrived) >= IDLE_EXPORTS)
        seconds = time.monotonic() - began

    metrics = [envelope for envelope in idle if measured(envelope)]
    others = [envelope for envelope in idle if not measured(envelope)]
    an_hour = size(metrics) / counters(idle) * EXPORTS_AN_HOUR + size(others) / seconds * 3600
    assert an_hour < 1_000_000
    assert [envelope for envelope in others if "azure" in json.dumps(envelope["data"])] == []


async def test_neither_rows_nor_the_hosts_log_name_a_partition_key_or_have_lines_of_the_sdks(
    worker: WorkerMaker, ingestion: Ingestion, servicebus: ServiceBusServer
) -> None:
    async with worker(**QUICKLY) as process:
        await process.handle([event("sound", KEY), event("malformed", KEY) | {"data": 7}])
        await set_topic_status(servicebus.admin_port, "SendDisabled")
        failed = await process.handle(events(KEY, 3), "i2")
        await process.ask(flush=True)
        shown = (await process.ask(logged=True))["lines"]

    assert failed == {"error": "PublishError"}
    assert "relay_failed" in json.dumps(ingestion.envelopes)
    assert KEY not in json.dumps(ingestion.envelopes)
    assert [line for line in shown if line.startswith("INFO azure") or KEY in line] == []


async def test_an_outage_of_many_keys_exports_little(
    worker: WorkerMaker, ingestion: Ingestion, servicebus: ServiceBusServer
) -> None:
    async with worker(RELAY_SENDERS="8") as process:
        await set_topic_status(servicebus.admin_port, "SendDisabled")
        assert await process.handle([event(f"e{n}", f"k{n}") for n in range(40)]) == {"error": "PublishError"}
        await process.ask(flush=True)

    assert "relay_failed" in json.dumps(ingestion.envelopes)
    assert ingestion.json_bytes < 100_000
