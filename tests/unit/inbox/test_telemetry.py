"""The reports of a receiver: a span linked to where the event was raised, and counts; no body and no key."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry import trace

from outbox_relay import inbox
from outbox_relay.inbox.messages import Handler
from outbox_relay.inbox.telemetry import Instruments
from tests.support.telemetry import Telemetry, installed
from tests.support.watchdog import WATCHDOG_S

TRACE, RAISED = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SPAN = "process domain-events"


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    found = installed()
    found.forget()
    yield found
    found.forget()


def message(sequence: int = 1, *, traceparent: str | None = None, created_at: str | None = None) -> inbox.Message:
    return inbox.Message(
        id=f"e{sequence}",
        key="somebody@contoso.com",
        body=b"secret",
        sequence=sequence,
        traceparent=traceparent,
        created_at=created_at,
        delivery_count=2,
        enqueued_at=datetime(2026, 11, 26, tzinfo=UTC),
    )


async def handle_with(handler: Handler, *messages: inbox.Message) -> None:
    observed = Instruments("domain-events", "all").observed(handler)
    for each in messages:
        await observed(each)  # type: ignore[misc]


async def test_the_span_is_linked_to_where_the_event_was_raised_and_has_no_parent(telemetry: Telemetry) -> None:
    inside: list[trace.Span] = []
    with trace.get_tracer("a start").start_as_current_span("start"):
        await handle_with(
            lambda _: inside.append(trace.get_current_span()),
            message(1, traceparent=f"00-{TRACE}-{RAISED}-01"),
            message(2, traceparent="no traceparent"),
            message(3),
        )
    spans = telemetry.spans(SPAN)

    assert [span.get_span_context() for span in inside] == [span.context for span in spans]
    assert {span.parent for span in spans} == {None}
    links = [
        [(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links]
        for span in spans
    ]
    assert links == [[(TRACE, RAISED)], [], []]
    assert spans[0].kind is trace.SpanKind.CONSUMER
    assert dict(spans[0].attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "domain-events",
        "messaging.destination.subscription.name": "all",
        "messaging.message.id": "e1",
        "messaging.servicebus.message.delivery_count": 2,
        "messaging.servicebus.message.enqueued_time": 1795651200,
    }


async def test_what_is_handled_is_counted_with_its_lag_and_the_gaps_before_it(telemetry: Telemetry) -> None:
    store, failed = inbox.MemoryStore(), False

    async def handle(received: inbox.Message) -> None:
        nonlocal failed
        async with store.once(received):
            if received.sequence == 5 and not failed:
                failed = True
                raise OSError("secret")

    an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    await handle_with(handle, message(1, created_at=an_hour_ago), message(2, created_at="yesterday"))
    with pytest.raises(OSError, match="secret"):
        await handle_with(handle, message(5))
    await handle_with(handle, message(5, created_at="2026-01-01T00:00:00"), message(5))
    metrics = telemetry.metrics()

    assert (metrics.total("inbox.handled"), metrics.total("inbox.gaps")) == (4, 2)
    assert metrics.by("inbox.retries", "error") == {"OSError": 1}
    assert metrics.count("inbox.lag") == 1
    assert 3600 <= metrics.sum("inbox.lag") < 3700
    assert metrics.attributes("inbox.") == {"domain-events", "all", "OSError"}
    assert {name: metrics.units[name] for name in ("inbox.lag", "inbox.gaps")} == {
        "inbox.lag": "s",
        "inbox.gaps": "{event}",
    }


async def test_a_failure_is_named_without_what_it_says(telemetry: Telemetry) -> None:
    def fail(_: inbox.Message) -> None:
        raise inbox.DeadLetter("unknown-product", "secret")

    with pytest.raises(inbox.DeadLetter):
        await handle_with(fail, message())
    [span] = telemetry.spans(SPAN)

    assert (span.attributes or {})["error.type"] == span.status.description == "DeadLetter"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert not span.events
    # It is not delivered again.
    assert telemetry.metrics().total("inbox.retries") == 0


def test_dead_letters_are_counted_by_a_bounded_number_of_reasons(telemetry: Telemetry) -> None:
    instruments = Instruments("orders", None)
    for number in (*range(60), 0):
        instruments.dead_lettered(f"reason-{number}")
    instruments.parked("reason-0")
    instruments.parked("reason-77")
    metrics = telemetry.metrics()
    counted = metrics.by("inbox.dead_lettered", "reason")

    assert metrics.by("inbox.parked", "reason") == {"reason-0": 1, "other": 1}
    assert (len(counted), counted["reason-0"], counted["other"]) == (51, 2, 10)


def test_without_opentelemetry_the_handler_is_called_as_it_is() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from outbox_relay import inbox
from outbox_relay.inbox.telemetry import telemetry_of
telemetry = telemetry_of("orders", None)
assert telemetry.observed(print) is print
telemetry.held(1)
telemetry.dead_lettered("unreadable")
print("nothing")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=WATCHDOG_S
    )
    assert ran.stdout == "nothing\n"
