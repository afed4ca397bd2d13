"""The telemetry of an attempt: its log record and the record's level, its span and its links, its failures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from outbox_relay.emulators.testing import ManualClock
from relay.backends.cosmos.source import select
from relay.core.errors import ChangesError, ConfigurationError, PublishError, QuarantineError, RetryableError
from relay.core.events import Received
from relay.core.results import KeyFailure, Outcome
from relay.routes.selection import BY_DEFAULT
from relay.telemetry import instruments
from relay.telemetry.attempt import RelayTelemetry, parse, span_contexts
from relay.telemetry.instruments import BoundedActions
from tests.support.outbox import event, events
from tests.support.telemetry import Telemetry
from tests.support.watchdog import WATCHDOG_S

ORDINARY: dict[str, Any] = {
    "ignored": 1,
    "published": 2,
    "already_published": 0,
    "superseded": 0,
    "quarantined": Counter[str](),
    "unsent": 0,
    "partition_keys": 1,
    "sends": 1,
    "failed": [],
    "set_aside": [],
}


STUCK = [KeyFailure("k", 1, RetryableError("later"))]


def outcome_of(**parts: Any) -> Outcome:
    """An ordinary outcome but for these parts."""
    fields = ORDINARY | parts
    counted = ("ignored", "published", "already_published", "superseded", "unsent")
    return Outcome(documents=sum(fields[name] for name in counted) + fields["quarantined"].total(), **fields)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def telemetry(clock: ManualClock) -> RelayTelemetry:
    return RelayTelemetry(monotonic=clock)


def line(
    telemetry: RelayTelemetry, caplog: pytest.LogCaptureFixture, retry_count: int = 0, **outcome: Any
) -> logging.LogRecord:
    """The record of an attempt that came to this outcome."""
    caplog.clear()
    with (
        caplog.at_level(logging.DEBUG, "relay.telemetry.attempt"),
        telemetry.attempting("i1", retry_count, "topic") as attempt,
    ):
        attempt.record_outcome(outcome_of(**outcome))
    return next(record for record in caplog.records if vars(record)["action"] == "relay_batch")


def test_ordinary_attempts_have_their_line_at_information_once_a_minute(
    clock: ManualClock, telemetry: RelayTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    levels = []
    for clock.now in (1000.0, 1001.0, 1059.9, 1060.0, 1061.0, 1200.0):
        levels.append(line(telemetry, caplog).levelname)

    assert levels == ["INFO", "DEBUG", "DEBUG", "INFO", "DEBUG", "INFO"]


@pytest.mark.parametrize(
    "unusual",
    [
        {"retry_count": 1},
        {"already_published": 1},
        {"superseded": 1},
        {"unsent": 1, "failed": STUCK},
        {"quarantined": Counter({"id-empty": 1})},
        {"unsent": 1, "failed": STUCK, "quarantined": Counter({"id-empty": 1})},
        {"already_published": 1, "quarantined": Counter({"id-empty": 1})},
        {"superseded": 1, "quarantined": Counter({"id-empty": 1})},
    ],
    ids=" and ".join,
)
def test_anything_unusual_has_its_line_at_information(
    unusual: dict[str, Any], telemetry: RelayTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    line(telemetry, caplog)
    assert line(telemetry, caplog).levelname == "DEBUG"

    assert line(telemetry, caplog, **unusual).levelname == "INFO"


def test_the_line_has_every_number_of_the_outcome(
    telemetry: RelayTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    record = line(telemetry, caplog, superseded=3)

    assert "superseded 3" in record.getMessage()
    found = vars(record)
    expected = {
        name: value for name, value in ORDINARY.items() if name not in ("failed", "quarantined", "set_aside")
    }
    assert {name: found[name] for name in expected} == expected | {"superseded": 3}
    assert 0 <= found["duration_s"] < WATCHDOG_S
    assert (found["invocation_id"], found["retry_count"], found["received"]) == ("i1", 0, 0)


def test_each_reason_to_quarantine_has_a_line(telemetry: RelayTelemetry, caplog: pytest.LogCaptureFixture) -> None:
    record = line(telemetry, caplog, quarantined=Counter({"id-empty": 2, "message-too-large": 1}))

    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    found = [(vars(each)["action"], vars(each)["reason"], vars(each)["count"]) for each in warnings]
    assert found == [("quarantine", "id-empty", 2), ("quarantine", "message-too-large", 1)]
    assert warnings[0].getMessage().startswith("quarantined 2 document(s): id-empty.")
    assert vars(record)["quarantined"] == 3


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def given(count: int = 3) -> Received:
    """The batch selected from `count` sound events, two documents of other types and one that is malformed."""
    sound = [document | {"traceparent": traceparent(n + 1)} for n, document in enumerate(events("k", count))]
    return select([*sound, None, {"type": "contact"}, event("bad", "k") | {"data": 7}], BY_DEFAULT)


def span_of(reported: Telemetry) -> ReadableSpan:
    (span,) = reported.spans()
    return span


def attempt(retry_count: int = 0, error: BaseException | None = None, **outcome: Any) -> None:
    """An attempt at three events that came to this outcome, or ended with this error."""
    with RelayTelemetry().attempting("i1", retry_count, "topic") as attempt:
        attempt.received(given(), lambda event: False)
        if outcome:
            attempt.record_outcome(outcome_of(**outcome))
        if error is not None:
            raise error


def test_the_span_of_an_attempt_has_its_counts_but_those_that_are_zero(reported: Telemetry) -> None:
    attempt(published=3, sends=2, ignored=2)

    span = span_of(reported)
    assert (span.kind, span.status.status_code, span.events) == (SpanKind.PRODUCER, StatusCode.UNSET, ())
    assert dict(span.attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.operation.type": "send",
        "messaging.operation.name": "relay",
        "messaging.destination.name": "topic",
        "messaging.batch.message_count": 3,
        "faas.invocation_id": "i1",
        "relay.topic": "topic",
        "relay.documents.received": 6,
        "relay.documents.ignored": 2,
        "relay.events.received": 3,
        "relay.events.published": 3,
        "relay.partition_keys": 1,
        "relay.sends": 2,
    }


def test_a_span_links_to_the_origins_of_at_most_ten_events(reported: Telemetry) -> None:
    for count in (9, 12):
        with RelayTelemetry().attempting("i1", 0, "topic") as attempt:
            attempt.received(given(count), lambda event: False)

    links = [[link.context.trace_id for link in span.links] for span in reported.spans()]
    assert links == [list(range(1, 10)), list(range(1, 11))]


def test_what_came_is_counted_and_what_came_again_too(reported: Telemetry) -> None:
    redelivered = []
    for retry_count in (0, 1, 2):
        attempt(retry_count, published=2, already_published=retry_count)
        seen = reported.metrics()
        assert (seen.total("relay.documents.received"), seen.total("relay.documents.ignored")) == (6, 2)
        assert seen.total("relay.ledger.hits") == retry_count
        redelivered.append(seen.total("relay.events.redelivered"))

    assert redelivered == [0, 4, 4]


def test_an_attempt_that_published_nothing_yet_reports_no_outcome(
    reported: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "relay.telemetry.attempt"), pytest.raises(OSError, match="no leases"):
        attempt(error=OSError("no leases\nat all"))

    (record,) = caplog.records
    assert record.getMessage() == "the invocation failed, and its 6 document(s) come again: OSError: no leases"
    assert vars(record).items() >= {"action": "relay_failed", "error": "OSError", "received": 6}.items()
    span = span_of(reported)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "OSError")
    found = dict(span.attributes or {})
    assert (found["error.type"], found["relay.documents.received"]) == ("OSError", 6)
    assert not {"relay.events.published", "relay.sends"} & found.keys()
    assert [dict(each.attributes or {}) for each in span.events] == [
        {
            "exception.type": "OSError",
            "exception.message": "6 document(s) come again. "
            "The log record with action relay_failed of this operation says why.",
        }
    ]


def test_an_exception_that_nobody_foresaw_is_logged_by_kind_and_place(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="Jane"), RelayTelemetry().attempting("i1", 0, "topic"):
        raise ValueError("no number: Jane")

    assert "come again: ValueError at test_attempt.py:" in caplog.records[0].getMessage()
    assert "Jane" not in caplog.text


def test_an_attempt_that_failed_before_anything_came_says_so(
    reported: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ChangesError, match="no JSON"), RelayTelemetry().attempting("i1", 0, "topic"):
        raise ChangesError("no JSON")

    assert caplog.records[0].getMessage() == (
        "the invocation failed, and its 0 document(s) come again: ChangesError: no JSON"
    )
    assert (
        dict(span_of(reported).attributes or {})
        .keys()
        .isdisjoint({"messaging.batch.message_count", "relay.events.received"})
    )


def test_an_attempt_that_is_cancelled_is_reported_as_failed(reported: Telemetry) -> None:
    with pytest.raises(asyncio.CancelledError):
        attempt(error=asyncio.CancelledError())

    span = span_of(reported)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "CancelledError")
    assert [dict(each.attributes or {})["exception.type"] for each in span.events] == ["CancelledError"]


FAILED = [
    KeyFailure("k1", 2, RetryableError("first")),
    KeyFailure("k2", 1, RetryableError("second")),
    KeyFailure("k3", 4, ConfigurationError("third")),
]


def test_what_was_not_accepted_is_logged_by_kind_of_error_with_an_example(
    reported: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "relay.telemetry.attempt"), pytest.raises(PublishError):
        attempt(error=PublishError("secret"), unsent=7, failed=FAILED)

    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == [
        "3 event(s) of 2 partition key(s) not accepted, to be sent again. RetryableError: first",
        "4 event(s) of 1 partition key(s) not accepted, to be sent again. ConfigurationError: third",
    ]
    found = [
        {name: vars(each)[name] for name in ("action", "error", "unsent", "partition_keys")} for each in errors
    ]
    assert found == [
        {"action": "relay_failed", "error": "RetryableError", "unsent": 3, "partition_keys": 2},
        {"action": "relay_failed", "error": "ConfigurationError", "unsent": 4, "partition_keys": 1},
    ]
    assert vars(caplog.records[0])["action"] == "relay_batch"
    span = span_of(reported)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "PublishError")
    assert (
        dict(span.attributes or {}).items() >= {"error.type": "RetryableError", "relay.events.unsent": 7}.items()
    )
    assert [dict(each.attributes or {})["exception.type"] for each in span.events] == [
        *("RetryableError", "ConfigurationError")
    ]
    assert "secret" not in span.to_json()


def test_what_could_not_be_quarantined_comes_again_and_no_line_says_that_it_was(
    reported: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "relay.telemetry.attempt"), pytest.raises(QuarantineError):
        attempt(error=QuarantineError("not written\nCheck it."), unsent=7, failed=FAILED)

    (record,) = caplog.records
    assert record.getMessage() == (
        "the invocation failed, and its 6 document(s) come again: not written\nCheck it."
    )
    span = span_of(reported)
    assert [dict(each.attributes or {})["exception.type"] for each in span.events] == ["QuarantineError"]


def test_the_time_that_is_left_is_reported_until_the_batch_is_delivered(reported: Telemetry) -> None:
    now = int(time.time())
    telemetry = RelayTelemetry()
    selection = select([event("e", "k") | {"_ts": now, "ttl": 1000}], BY_DEFAULT)

    def least() -> float:
        return reported.metrics().gauge("relay.ttl.headroom") or 0.0

    def attempt(retry_count: int, error: Exception | None) -> None:
        with telemetry.attempting("i1", retry_count, "topic") as attempt:
            attempt.received(selection, lambda event: False)
            found.append(least())
            if error is not None:
                raise error

    found: list[float] = []
    with pytest.raises(OSError, match="no"):
        attempt(0, OSError("no"))
    found.append(least())
    attempt(1, None)

    assert found == [pytest.approx(1000, abs=30)] * 3
    assert reported.metrics().gauge("relay.ttl.headroom") is None


def test_what_is_published_in_an_attempt_is_counted_at_its_end(reported: Telemetry) -> None:
    with RelayTelemetry().attempting("i1", 0, "topic"):
        instruments.accepted(given().events, 0.5, BoundedActions())
        during = reported.metrics().total("relay.events.published")

    assert (during, reported.metrics().total("relay.events.published")) == (0, 3)


def test_events_that_hold_up_their_keys_are_logged_with_the_commands_that_set_them_aside(
    reported: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    failed = [KeyFailure("k1", 2, RetryableError("the link has ended"), blocked_by="e1"), *FAILED[1:]]

    with pytest.raises(PublishError):
        attempt(error=PublishError("secret"), unsent=7, failed=failed, published=1)

    [named] = [record for record in caplog.records if vars(record).get("action") == "relay_blocked"]
    assert named.levelname == "ERROR"
    assert named.getMessage() == (
        "The event 'e1' alone holds up 'k1' while others go through. To set it aside: "
        "python -m relay quarantine add k1 e1"
    )


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("text", [f"00-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-the-future-adds"])
def test_a_valid_traceparent_becomes_a_remote_span_context(text: str) -> None:
    context = parse(text)

    assert context is not None
    assert (context.trace_id, context.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert context.trace_flags.sampled
    assert context.is_remote


def test_flags_are_two_hexadecimal_digits() -> None:
    context = parse(f"00-{TRACE}-{SPAN}-fd")

    assert context is not None
    assert context.trace_flags == 0xFD


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_an_invalid_traceparent_is_none(text: str) -> None:
    assert parse(text) is None


def test_links_are_distinct_valid_and_bounded() -> None:
    texts = [f"00-{TRACE}-{number:016x}-01" for number in range(1, 6)]

    found = span_contexts([texts[0], texts[0], None, 7, "rubbish", *texts[1:]], limit=3)

    assert [context.span_id for context in found] == [1, 2, 3]
