"""What the libraries log stays in the process: the real exporter sends what the relay says, and little when idle.

All of it with the exporter at the root logger, the worker's default, where the most reaches it.
"""

from __future__ import annotations

import json
import time

import pytest

from outbox_emulators.servicebus.server import ServiceBusServer
from tests.support.broker import set_topic_status
from tests.support.outbox import event, events
from tests.telemetry.conftest import WorkerMaker
from tests.telemetry.ingestion import Envelope, Ingestion
from tests.telemetry.process import QUICKLY

# One process imports the exporter for all of a group.
pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("exporter")]

EXPORTS_AN_HOUR = 60
IDLE_EXPORTS = 6
KEY = "partition-key-of-a-person"


def measured(envelope: Envelope) -> bool:
    """Whether it is a metric's."""
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
