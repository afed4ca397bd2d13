"""The relay's reports add up to the events that went through: metrics, the span, the log lines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any
from weakref import WeakSet

import pytest
from azure.core.settings import settings as azure_settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.cosmos.aio import ContainerProxy
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from local.demo.tally import Tally
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends import assembly
from relay.backends.cosmos.backend import CosmosRelay
from relay.config.clients import switch_off_sdk_tracing
from relay.core.errors import PublishError, QuarantineError
from relay.telemetry import instruments
from relay.telemetry.attempt import RelayTelemetry
from tests.integration.conftest import ROOT, RelayMaker
from tests.support import contact_scenarios
from tests.support.broker import refuse, set_topic_status, stop_refusing, topic_counts
from tests.support.outbox import event, events
from tests.support.quarantine import quarantined
from tests.support.subscriber import properties, received
from tests.support.telemetry import Telemetry, installed
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

TTL_S = 864_000
CREATED = "ContactCreatedEvent"
RENAMED = "ContactNameUpdatedEvent"


class TurnableClock:
    """Seconds since the epoch, which a test can turn forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def clock() -> TurnableClock:
    return TurnableClock()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch, clock: TurnableClock) -> Telemetry:
    """The metrics reported from here on, without those of other tests."""
    monkeypatch.setattr(instruments, "_headrooms", WeakSet())
    monkeypatch.setattr(assembly, "RelayTelemetry", lambda label: RelayTelemetry(clock, label=label))
    telemetry_in_memory = installed()
    telemetry_in_memory.forget()
    return telemetry_in_memory


def committed_now(documents: list[dict[str, Any]], *, age_s: int = 0, ttl: int = TTL_S) -> list[dict[str, Any]]:
    return [document | {"_ts": int(time.time()) - age_s, "ttl": ttl} for document in documents]


def mixed_documents(count: int) -> list[dict[str, Any] | None]:
    """Events of two actions and thirty keys, some malformed or too large, and documents of other kinds."""
    documents: list[dict[str, Any] | None] = []
    for number in range(count):
        document = event(f"e-{number}", f"k-{number % 30}", action=CREATED if number % 3 else RENAMED)
        if number % 25 == 0:
            document["data"] = "no object"
        elif number % 60 == 7:
            document["data"]["text"] = "x" * 300_000
        elif number % 10 == 1:
            document["type"] = "contact"
        documents.append(None if number == 299 else document)
    return documents


async def test_the_counters_of_a_batch_add_up_to_its_documents(
    make_relay: RelayMaker, reported: Telemetry, quarantine: ContainerProxy
) -> None:
    documents = mixed_documents(300)

    outcome = await make_relay().handle(documents, "i1")

    seen = reported.metrics()
    records = await quarantined(quarantine)
    reasons = Counter(record["reason"] for record in records)
    assert seen.total("relay.documents.received") == 300
    assert seen.total("relay.documents.ignored") == outcome.ignored == 31
    assert (
        seen.by("relay.events.quarantined", "reason") == reasons == {"data-not-object": 12, "message-too-large": 5}
    )
    published = seen.by("relay.events.published", "action")
    assert published.keys() == {CREATED, RENAMED}
    assert sum(published.values()) == 300 - 31 - 17
    assert seen.count("relay.lag") == seen.sum("relay.batch.events") == 300 - 31 - 17
    assert seen.total("relay.sends") == seen.count("relay.send.duration") == seen.count("relay.batch.events")
    assert seen.total("relay.sends") == outcome.sends
    assert seen.total("relay.events.redelivered") == seen.total("relay.ledger.hits") == 0


async def test_a_demo_run_adds_up_to_what_was_written(
    environment: dict[str, str],
    container: ContainerProxy,
    reported: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[CosmosRelay] = []
    make = assembly.assemble

    def remember(*given: Any) -> CosmosRelay:
        made.append(make(*given))
        return made[-1]

    monkeypatch.setattr("relay.backends.assembly.assemble", remember)
    settings = environment | {"RELAY_POLL_DELAY_MS": "100"}
    host = Host(ROOT, settings, lease_acquire_ms=50, lease_renew_ms=200, lease_expiration_ms=2000)
    tally = Tally()
    try:
        await contact_scenarios.write_scenarios(
            container, contact_scenarios.scenarios(20, 300, seed=7), tally, writers=8
        )
        malformed = [event(f"bad-{number}", "b") | {"data": number} for number in range(9)]
        for document in malformed:
            await container.create_item(document)
        written = [item async for item in container.read_all_items()]
        await host.start()
        async with asyncio.timeout(WATCHDOG_S):
            while host.status()["functions"][0]["documents_delivered"] < len(written):
                await look_again()
    finally:
        await host.stop()
        for relay in made:
            await relay.close()

    seen = reported.metrics()
    valid = [item for item in written if item["type"] == "domainEvent" and isinstance(item["data"], dict)]
    actions = Counter(item["data"]["action"] for item in valid)
    assert seen.by("relay.events.published", "action") == actions
    assert actions.total() == tally.written == 300
    assert seen.by("relay.events.quarantined", "reason") == {"data-not-object": 9}
    assert seen.total("relay.documents.ignored") == len(written) - 309
    assert seen.total("relay.documents.received") == len(written)
    assert seen.count("relay.lag") == 300
    assert seen.gauge("relay.ttl.headroom") is None
    published = [dict(span.attributes or {})["relay.events.published"] for span in reported.spans()]
    assert sum(count for count in published if isinstance(count, int)) == 300


async def test_a_retried_batch_is_published_and_quarantined_once_and_counted_as_redelivered(
    make_relay: RelayMaker, servicebus: ServiceBusServer, reported: Telemetry
) -> None:
    await refuse(servicebus.admin_port, "k7-1", "amqp:internal-error")
    relay = make_relay(RELAY_SEND_TIMEOUT_S="2")
    documents = [document for number in range(10) for document in events(f"k{number}", 3)]
    documents.append(event("bad", "k1") | {"data": None})
    with pytest.raises(PublishError):
        await relay.handle(documents, "i1")
    first = reported.metrics()
    await stop_refusing(servicebus.admin_port)

    await relay.handle(documents, "i1", 1)

    second = reported.metrics()
    assert (first.total("relay.events.published"), second.total("relay.events.published")) == (27, 3)
    assert (first.total("relay.events.quarantined"), second.total("relay.events.quarantined")) == (1, 0)
    assert (first.total("relay.events.redelivered"), second.total("relay.events.redelivered")) == (0, 31)
    assert (first.total("relay.ledger.hits"), second.total("relay.ledger.hits")) == (0, 27)
    assert (first.count("relay.lag"), second.count("relay.lag")) == (27, 3)


async def test_what_was_accepted_counts_as_often_as_it_was_though_its_invocation_was_cancelled(
    make_relay: RelayMaker, servicebus: ServiceBusServer, reported: Telemetry
) -> None:
    servicebus.broker.ack_delay_ms = 50
    relay = make_relay(RELAY_SENDERS="1")
    documents = [document for number in range(20) for document in events(f"k{number}", 2)]
    attempt = asyncio.create_task(relay.handle(documents, "i1"))
    async with asyncio.timeout(WATCHDOG_S):
        while (await topic_counts(servicebus.admin_port))["accepted"] < 10:
            await look_again()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    first = reported.metrics().total("relay.events.published")

    await relay.handle(documents, "i1", 1)

    second = reported.metrics()
    topic = await topic_counts(servicebus.admin_port)
    assert 0 < first < 40
    # What was in flight when the first was cancelled is accepted later, and may have been sent again by then.
    assert first + second.total("relay.events.published") == topic["accepted"]
    assert topic["accepted"] - topic["duplicates_dropped"] == 40
    assert second.total("relay.ledger.hits") >= first


async def test_headroom_falls_while_an_outage_lasts_and_ends_with_it(
    make_relay: RelayMaker, servicebus: ServiceBusServer, reported: Telemetry, clock: TurnableClock
) -> None:
    await set_topic_status(servicebus.admin_port, "SendDisabled")
    relay = make_relay()
    documents = committed_now(events("a", 3), age_s=1000) + committed_now(events("b", 3))
    headrooms = []
    for retry in range(3):
        with pytest.raises(PublishError):
            await relay.handle(documents, "i1", retry)
        headrooms.append(reported.metrics().gauge("relay.ttl.headroom"))
        clock.ahead_s += 60

    await set_topic_status(servicebus.admin_port, "Active")
    await relay.handle(documents, "i1", 3)

    assert headrooms == [pytest.approx(TTL_S - 1000 - 60 * retry, abs=30) for retry in range(3)]
    assert reported.metrics().gauge("relay.ttl.headroom") is None


async def test_without_its_quarantine_what_was_published_counts_and_what_was_not_stored_has_a_headroom(
    make_relay: RelayMaker, reported: Telemetry
) -> None:
    malformed = committed_now([event("x", "a") | {"data": 7}], ttl=5000)

    with pytest.raises(QuarantineError):
        await make_relay(COSMOS_QUARANTINE_CONTAINER="nowhere").handle(
            [*committed_now(events("a", 2)), *malformed], "i1"
        )

    seen = reported.metrics()
    assert seen.total("relay.events.published") == 2
    assert seen.total("relay.events.quarantined") == 0
    assert seen.gauge("relay.ttl.headroom") == pytest.approx(5000, abs=30)
    (span,) = reported.spans()
    assert span.status.status_code is StatusCode.ERROR


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


async def test_the_span_is_a_child_of_what_is_current_and_links_to_each_valid_origin_once(
    make_relay: RelayMaker, reported: Telemetry
) -> None:
    documents = events("a", 6)
    marks = [traceparent(7), traceparent(7), traceparent(8), "rubbish", traceparent(0), 9]
    documents = [document | {"traceparent": mark} for document, mark in zip(documents, marks, strict=True)]

    with trace.get_tracer("worker").start_as_current_span("invocation") as invocation:
        await make_relay().handle(documents, "i1")

    (span,) = reported.spans()
    assert span.parent is not None
    assert span.parent.span_id == invocation.get_span_context().span_id
    assert [(link.context.trace_id, link.context.is_remote) for link in span.links] == [(7, True), (8, True)]


async def test_a_failed_attempt_is_on_its_span_and_in_the_log_without_keys_or_payloads_in_attributes(
    make_relay: RelayMaker, servicebus: ServiceBusServer, reported: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    await set_topic_status(servicebus.admin_port, "SendDisabled")

    with caplog.at_level(logging.INFO, "relay"), pytest.raises(PublishError):
        await make_relay().handle(events("secret-key", 3, name="secret-name"), "i1", 4)

    (span,) = reported.spans()
    assert span.status.status_code is StatusCode.ERROR
    attributes = {**(span.attributes or {})}
    assert (attributes["error.type"], attributes["relay.events.unsent"], attributes["relay.retry_count"]) == (
        "ConfigurationError",
        3,
        4,
    )
    assert "secret" not in span.to_json()
    assert not any("secret" in value for value in reported.metrics().attributes())
    (failure,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "Set the topic's status to Active" in failure.getMessage()
    assert vars(failure).items() >= {"action": "relay_failed", "error": "ConfigurationError", "unsent": 3}.items()
    assert not any("secret" in record.getMessage() for record in caplog.records if record.name.startswith("relay"))


async def test_each_invocation_has_one_summary_line_with_fields(
    make_relay: RelayMaker, reported: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "relay"):
        await make_relay().handle([*events("a", 2), None, event("x", "")], "i1")

    summary, quarantined = [vars(record) for record in caplog.records if record.name.startswith("relay")]
    assert (
        summary.items()
        >= {
            "action": "relay_batch",
            "invocation_id": "i1",
            "retry_count": 0,
            "received": 4,
            "ignored": 1,
            "published": 2,
            "already_published": 0,
            "quarantined": 1,
            "unsent": 0,
            "partition_keys": 1,
            "sends": 1,
        }.items()
    )
    assert quarantined.items() >= {"action": "quarantine", "reason": "partition-key-empty", "count": 1}.items()


async def test_with_the_sdks_own_tracing_switched_off_the_consumer_gets_the_events_traceparent_and_no_other(
    make_relay: RelayMaker, servicebus: ServiceBusServer, reported: Telemetry
) -> None:
    # As azure-monitor-opentelemetry sets it in the Functions worker.
    azure_settings.tracing_implementation = OpenTelemetrySpan
    try:
        switch_off_sdk_tracing()
        with_origin, without = events("a", 2)
        await make_relay(RELAY_PIPELINED="false").handle(
            [with_origin | {"traceparent": traceparent(7)}, without], "i1"
        )
    finally:
        azure_settings.tracing_implementation = None

    subscriber = await received(servicebus.connection_string, 2)
    first, second = (properties(message) for message in subscriber.messages["a"])
    assert first["traceparent"] == traceparent(7)
    assert not {"traceparent", "Diagnostic-Id"} & second.keys()
    assert reported.spans("ServiceBus.message") == []
