"""The telemetry of one attempt: a span, a summary log record, and a record for each kind of failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from relay.core.errors import PublishError, QuarantineError, RelayError, described, first_line
from relay.core.events import Event, Received
from relay.core.remedy import LIST, Sentence
from relay.core.results import KeyFailure, Outcome
from relay.telemetry import instruments
from relay.telemetry.gauges import Batch, Headroom, ShardAges
from relay.telemetry.stream import as_logged, attributes_of, logger_of, working_for

# A sample of the requests behind a batch: each link adds 80 characters to the span's row, and each message carries
# its own event's traceparent anyhow. Beyond 102 links, their JSON exceeds the 8192 characters of a property.
MAX_LINKS = 10

# Seconds between INFO records of attempts without anything unusual. Each such record is a row that costs money.
SUMMARY_EVERY_S = 60.0

_PROPAGATOR = TraceContextTextMapPropagator()

logger = logger_of(__name__)


class Pace:
    """True at most once in `every_s` seconds, and at first."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._last: float | None = None

    def due(self) -> bool:
        """Return True if it is time again; if so, the next time is `every_s` from now."""
        now = self._clock()
        if self._last is not None and now - self._last < self._every_s:
            return False
        self._last = now
        return True


@dataclass(slots=True)
class Attempt:
    """The facts about an attempt so far. `invocation_id` is the host's, `retry_count` 0 in the first attempt."""

    invocation_id: str
    retry_count: int
    span: Span
    headroom: Headroom
    pace: Pace
    began: float = field(default_factory=time.perf_counter)
    documents: int = 0
    batch: Batch | None = None
    outcome: Outcome | None = None

    def received(self, received: Received, accepted: Callable[[Event], bool]) -> None:
        """Record the documents from the source; `accepted` says whether Service Bus has an event already."""
        self.documents = received.documents
        instruments.received(documents=self.documents, ignored=received.ignored, retried=self.retry_count > 0)
        self.batch = Batch(received.events, received.rejected, accepted)
        self.headroom.begin(self.batch)
        if self.span.is_recording():
            for context in span_contexts((event.traceparent for event in received.events), MAX_LINKS):
                self.span.add_link(context)

    def record_outcome(self, outcome: Outcome) -> None:
        """Record what became of the events. Rejected ones are not in quarantine yet."""
        self.outcome = outcome
        instruments.already_published(outcome.already_published)

    def ended(self, error: BaseException | None) -> None:
        """Record the end of the attempt, with the error that ended it, if any."""
        if self.batch is not None:
            self.headroom.end(self.batch, delivered=error is None)
        if self.span.is_recording():
            self.span.set_attributes(self._attributes())
            self._record_on_span(error)
        if self.outcome is not None and not isinstance(error, QuarantineError):
            self._summarise(self.outcome)
        if error is not None:
            self._log_failure(error)

    def _attributes(self) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {"faas.invocation_id": self.invocation_id}
        if self.batch is not None:
            attributes["messaging.batch.message_count"] = len(self.batch.events)
        return attributes | {name: count for name, count in self._counts().items() if count}

    def _counts(self) -> dict[str, int]:
        counts = {"relay.retry_count": self.retry_count, "relay.documents.received": self.documents}
        if self.batch is not None:
            counts["relay.events.received"] = len(self.batch.events)
        if self.outcome is not None:
            counts |= {
                "relay.documents.ignored": self.outcome.ignored,
                "relay.events.published": self.outcome.published,
                "relay.events.quarantined": self.outcome.quarantined.total(),
                "relay.events.unsent": self.outcome.unsent,
                "relay.events.superseded": self.outcome.superseded,
                "relay.ledger.hits": self.outcome.already_published,
                "relay.partition_keys": self.outcome.partition_keys,
                "relay.sends": self.outcome.sends,
            }
        return counts

    def _record_on_span(self, error: BaseException | None) -> None:
        # The kinds and numbers alone: what errors say may name keys, and is in the log lines of the same trace id.
        if error is None:
            return
        failures = self._failures() if isinstance(error, PublishError) else {}
        explained = {kind: _unsent(keys) for kind, keys in failures.items()}
        explained = explained or {type(error).__name__: f"{self.documents} document(s) come again."}
        for kind, says in explained.items():
            message = f"{says} The log record with action relay_failed of this operation says why."
            self.span.add_event("exception", {"exception.type": kind, "exception.message": message})
        self.span.set_attribute("error.type", next(iter(explained)))
        self.span.set_status(Status(StatusCode.ERROR, type(error).__name__))

    def _failures(self) -> dict[str, list[KeyFailure]]:
        """Return the keys that did not go through, by the kind of error."""
        failures: dict[str, list[KeyFailure]] = {}
        for key in self.outcome.failed if self.outcome is not None else ():
            failures.setdefault(type(key.error).__name__, []).append(key)
        return failures

    def _summarise(self, outcome: Outcome) -> None:
        quarantined = outcome.quarantined.total()
        level = self._level(outcome, quarantined)
        if logger.isEnabledFor(level):
            self._log_summary(level, outcome, quarantined)
        for reason, count in outcome.quarantined.items():
            logger.warning(
                "quarantined %d document(s): %s. See `%s`.",
                count,
                reason,
                LIST.render(as_logged()),
                extra=self._fields("quarantine") | {"reason": reason, "count": count},
            )

    def _log_summary(self, level: int, outcome: Outcome, quarantined: int) -> None:
        logger.log(
            level,
            "published %d event(s) of %d partition key(s) in %d send(s); ignored %d, already published %d, "
            "superseded %d, quarantined %d, unsent %d",
            outcome.published,
            outcome.partition_keys,
            outcome.sends,
            outcome.ignored,
            outcome.already_published,
            outcome.superseded,
            quarantined,
            outcome.unsent,
            extra=self._fields("relay_batch")
            | {
                "received": self.documents,
                "ignored": outcome.ignored,
                "published": outcome.published,
                "already_published": outcome.already_published,
                "superseded": outcome.superseded,
                "quarantined": quarantined,
                "unsent": outcome.unsent,
                "partition_keys": outcome.partition_keys,
                "sends": outcome.sends,
                "duration_s": round(time.perf_counter() - self.began, 6),
            },
        )

    def _level(self, outcome: Outcome, quarantined: int) -> int:
        # A retry's record also shows that a host took the batch up again after a failure (silent.kql).
        unusual = quarantined or outcome.unsent or outcome.already_published or outcome.superseded
        return logging.INFO if self.pace.due() or self.retry_count or unusual else logging.DEBUG

    def _log_failure(self, error: BaseException) -> None:
        if isinstance(error, PublishError):
            for kind, keys in self._failures().items():
                logger.error(
                    "%s %s: %s",
                    _unsent(keys),
                    kind,
                    keys[0].error.sentence.render(as_logged()),
                    extra=self._fields("relay_failed")
                    | {
                        "error": kind,
                        "unsent": sum(key.unsent for key in keys),
                        "partition_keys": len(keys),
                    },
                )
            if self.outcome is not None and self.outcome.remedies:
                said = Sentence.of_lines(self.outcome.remedies).render(as_logged())
                logger.error("%s", said, extra=self._fields("relay_blocked"))
            return
        logger.error(
            "the invocation failed, and its %d document(s) come again: %s",
            self.documents,
            _explained(error),
            extra=self._fields("relay_failed") | {"error": type(error).__name__, "received": self.documents},
        )

    def _fields(self, action: str) -> dict[str, Any]:
        return {"action": action, "invocation_id": self.invocation_id, "retry_count": self.retry_count}


def _explained(error: BaseException) -> str:
    if isinstance(error, QuarantineError):
        return str(error)
    if isinstance(error, RelayError | OSError) or not isinstance(error, Exception):
        return first_line(error)
    # An unexpected error may show an event's content.
    return described(error)


def _unsent(keys: Sequence[KeyFailure]) -> str:
    unsent = sum(key.unsent for key in keys)
    return f"{unsent} event(s) of {len(keys)} partition key(s) not accepted, to be sent again."


class RelayTelemetry:
    """The state that the attempts of one relay share. Another relay in the process has its own."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        label: str | None = None,
    ) -> None:
        """Create the telemetry; `label` is the stream's."""
        self._label = label
        self._of_stream = {f"relay.{name}": value for name, value in (attributes_of(label) or {}).items()}
        self.headroom = Headroom(clock, monotonic, label)
        self.shard_ages = ShardAges(label)
        self._pace = Pace(SUMMARY_EVERY_S, monotonic)
        instruments.observe(self.headroom, self.shard_ages)

    @contextmanager
    def attempting(self, invocation_id: str, retry_count: int, topic: str) -> Iterator[Attempt]:
        """Observe one attempt from start to end. Exceptions are recorded and re-raised.

        The span is a producer's by the conventions for messaging: it sends messages that were created by others,
        and links to where each was. It is a child of the span that the Functions worker may have made current.
        https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
        """
        span_of_attempt = instruments.tracer.start_as_current_span(
            "relay",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "servicebus",
                "messaging.operation.type": "send",
                "messaging.operation.name": "relay",
                "messaging.destination.name": topic,
                # Application Insights drops what begins with `messaging.`.
                "relay.topic": topic,
                **self._of_stream,
            },
            record_exception=False,
            set_status_on_exception=False,
        )
        counted = instruments.counted_together() if self._label is None else _counted_for(self._label)
        with counted, span_of_attempt as span:
            attempt = Attempt(invocation_id, retry_count, span, self.headroom, self._pace)
            try:
                yield attempt
            except BaseException as error:
                attempt.ended(error)
                raise
            attempt.ended(None)


@contextmanager
def _counted_for(label: str) -> Iterator[None]:
    with working_for(label), instruments.counted_together():
        yield


def span_contexts(traceparents: Iterable[Any], limit: int) -> Iterator[SpanContext]:
    """Yield the first `limit` distinct valid span contexts; others are skipped."""
    seen: set[str] = set()
    for text in traceparents:
        if len(seen) >= limit:
            return
        if not isinstance(text, str) or text in seen:
            continue
        context = parse(text)
        if context is not None:
            seen.add(text)
            yield context


def parse(traceparent: str) -> SpanContext | None:
    """Return the span context of a W3C traceparent, or None if it is not valid."""
    if traceparent != traceparent.strip():
        # Only a header may have blanks around it.
        return None
    found = _PROPAGATOR.extract({"traceparent": traceparent}, Context())
    context = get_current_span(found).get_span_context()
    return context if context.is_valid else None
