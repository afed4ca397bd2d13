"""The spans and metrics of a receiver, if opentelemetry-api (the extra `telemetry`) is installed.

No attribute holds a body, a key or a session. docs/receiving-events.md describes each.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from outbox_relay.inbox.errors import DeadLetter
from outbox_relay.inbox.messages import Handler, Message, noting_missing

# A metric has one series for each combination of attributes, and each costs.
_MAX_REASONS = 50
_OTHER = "other"

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_LAG_BOUNDARIES = (
    *(0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 15 * _MINUTE),
    *(_HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY),
)

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _IS_INSTALLED = False
else:
    _IS_INSTALLED = True
    _propagator = TraceContextTextMapPropagator()
    _tracer = trace.get_tracer("inbox")
    _meter = metrics.get_meter("inbox")
    _handled = _meter.create_counter("inbox.handled", "{message}", "Messages whose handler has returned.")
    _retries = _meter.create_counter(
        "inbox.retries", "{message}", "Messages whose handler has failed, and that are delivered again."
    )
    _dead_lettered = _meter.create_counter(
        "inbox.dead_lettered", "{message}", "Messages that the consumer has dead-lettered."
    )
    _parked = _meter.create_counter(
        "inbox.parked", "{key}", "Keys that were parked because of a message that cannot be handled."
    )
    _gaps = _meter.create_counter(
        "inbox.gaps", "{event}", "Events that should have come before one that was handled, and did not."
    )
    _sessions = _meter.create_up_down_counter("inbox.sessions", "{session}", "Sessions that are held now.")
    _lag = _meter.create_histogram(
        "inbox.lag",
        "s",
        "From when an event was raised to the end of its handler.",
        explicit_bucket_boundaries_advisory=_LAG_BOUNDARIES,
    )


def telemetry_of(topic: str, subscription: str | None) -> Telemetry:
    """Return the telemetry for the messages of a subscription, or of a queue.

    It reports nothing if opentelemetry-api is not installed.
    """
    return Instruments(topic, subscription) if _IS_INSTALLED else Telemetry()


class Telemetry:
    """Reports nothing, and costs nothing. `Instruments` reports."""

    def observed(self, handler: Handler) -> Handler:
        """Return a handler that reports each call: its span, its lag, and its outcome."""
        return handler

    def held(self, sessions: int) -> None:
        """Add to the number of sessions held; `sessions` may be negative."""

    def parked(self, reason: str) -> None:
        """Report that a key is parked because of a message that cannot be handled."""

    def dead_lettered(self, reason: str) -> None:
        """Report that a message is dead-lettered by its handler, or because no handler can read it."""


class Instruments(Telemetry):
    """Reports on the messages of a subscription, or of a queue."""

    def __init__(self, topic: str, subscription: str | None) -> None:
        self._of_metrics = {"topic": topic} | ({"subscription": subscription} if subscription else {})
        self._of_spans = {
            "messaging.system": "servicebus",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
        }
        if subscription:
            self._of_spans["messaging.destination.subscription.name"] = subscription
        self._span_name = f"process {topic}"
        self._reasons: set[str] = set()

    def observed(self, handler: Handler) -> Handler:
        """See `Telemetry.observed`. The span is linked to where the event was raised, and has no parent."""

        async def observe(message: Message) -> None:
            missing = noting_missing()
            with self._span(message):
                result = handler(message)
                if inspect.isawaitable(result):
                    await result
            _handled.add(1, self._of_metrics)
            if missing and missing[0]:
                _gaps.add(missing[0], self._of_metrics)
            if (lag_s := _lag_s(message.created_at)) is not None:
                _lag.record(lag_s, self._of_metrics)

        return observe

    def held(self, sessions: int) -> None:
        """See `Telemetry.held`."""
        _sessions.add(sessions, self._of_metrics)

    def parked(self, reason: str) -> None:
        """See `Telemetry.parked`. Reasons beyond the first fifty are counted as `other`."""
        _parked.add(1, self._because(reason))

    def dead_lettered(self, reason: str) -> None:
        """Count a dead-lettered message by its reason; see `Telemetry.dead_lettered`."""
        _dead_lettered.add(1, self._because(reason))

    def _because(self, reason: str) -> dict[str, str]:
        if len(self._reasons) < _MAX_REASONS:
            self._reasons.add(reason)
        return self._of_metrics | {"reason": reason if reason in self._reasons else _OTHER}

    @contextmanager
    def _span(self, message: Message) -> Iterator[None]:
        with _tracer.start_as_current_span(
            self._span_name,
            # Not that of the task that called `run`: it may be a start's, or a request's, that is long over.
            context=Context(),
            kind=trace.SpanKind.CONSUMER,
            attributes=self._attributes(message),
            links=_links(message),
            # What an error says may quote the body.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                kind = type(error).__name__
                span.set_attribute("error.type", kind)
                span.set_status(trace.Status(trace.StatusCode.ERROR, kind))
                if isinstance(error, Exception) and not isinstance(error, DeadLetter):
                    _retries.add(1, self._of_metrics | {"error": kind})
                raise

    def _attributes(self, message: Message) -> dict[str, str | int]:
        found: dict[str, str | int] = {
            **self._of_spans,
            "messaging.message.id": message.id,
            "messaging.servicebus.message.delivery_count": message.delivery_count,
        }
        if message.enqueued_at is not None:
            found["messaging.servicebus.message.enqueued_time"] = int(message.enqueued_at.timestamp())
        return found


def _links(message: Message) -> list[trace.Link]:
    if not message.traceparent:
        return []
    raised = _propagator.extract({"traceparent": message.traceparent}, Context())
    context = trace.get_current_span(raised).get_span_context()
    return [trace.Link(context)] if context.is_valid else []


def _lag_s(created_at: str | None) -> float | None:
    """Return the seconds since then.

    It is None if it is no time with an offset. The clocks of two machines differ.
    """
    try:
        created = datetime.fromisoformat(created_at or "")
    except ValueError:
        return None
    if created.tzinfo is None:
        return None
    return max(0.0, (datetime.now(UTC) - created).total_seconds())
