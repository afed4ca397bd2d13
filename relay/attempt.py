"""One attempt of an invocation, as operators see it: a span, a summary line, a line for each kind of failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from relay import telemetry
from relay.errors import PublishError, QuarantineError, first_line
from relay.events import DomainEvent
from relay.headroom import Batch
from relay.outcome import Outcome
from relay.selection import Selection
from relay.tracelinks import span_contexts
from relay.turn import PartitionOutcome

# The OpenTelemetry SDK's own limit; more would be dropped there.
MAX_LINKS = 128

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Attempt:
    """What is known of an attempt so far. `invocation_id` is the host's, `retry_count` 0 in the first attempt."""

    invocation_id: str
    retry_count: int
    span: Span
    began: float = field(default_factory=time.perf_counter)
    documents: int = 0
    batch: Batch | None = None
    outcome: Outcome | None = None

    def received(self, selection: Selection, accepted: Callable[[DomainEvent], bool]) -> None:
        """What the trigger delivered; `accepted` tells whether Service Bus has an event already."""
        events, rejected = selection.events, [item.document for item in selection.rejected]
        self.documents = len(events) + len(rejected) + selection.ignored
        telemetry.received(documents=self.documents, ignored=selection.ignored, retried=self.retry_count > 0)
        self.batch = Batch(events, rejected, accepted)
        telemetry.headroom.begin(self.batch)
        if self.span.is_recording():
            for context in span_contexts((event.document.get("traceparent") for event in events), MAX_LINKS):
                self.span.add_link(context)

    def settled(self, outcome: Outcome) -> None:
        """What became of the events; what is to be quarantined is not stored yet."""
        self.outcome = outcome
        telemetry.remembered(outcome.remembered)

    def ended(self, error: BaseException | None) -> None:
        """The attempt is over, by `error` if there was one."""
        if self.batch is not None:
            telemetry.headroom.end(self.batch, delivered=error is None)
        if self.span.is_recording():
            self.span.set_attributes(self._attributes())
            self._tell_span(error)
        if self.outcome is not None and not isinstance(error, QuarantineError):
            self._summarise(self.outcome)
        if error is not None:
            self._log_failure(error)

    def _attributes(self) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {
            "faas.invocation_id": self.invocation_id,
            "relay.retry_count": self.retry_count,
            "relay.documents.received": self.documents,
        }
        if self.batch is not None:
            attributes["messaging.batch.message_count"] = len(self.batch.events)
        if self.outcome is not None:
            attributes |= {
                "relay.documents.ignored": self.outcome.ignored,
                "relay.events.published": self.outcome.published,
                "relay.events.quarantined": self.outcome.quarantined.total(),
                "relay.events.unsent": self.outcome.unsent,
                "relay.ledger.hits": self.outcome.remembered,
                "relay.partition_keys": self.outcome.partitions,
                "relay.sends": self.outcome.sends,
            }
        return attributes

    def _tell_span(self, error: BaseException | None) -> None:
        # The kinds alone: what errors say may name keys, and is told in the log lines under the same trace id.
        if error is None:
            return
        kinds = list(self._failures()) if isinstance(error, PublishError) else []
        for kind in kinds or [type(error).__name__]:
            self.span.add_event("exception", {"exception.type": kind})
        self.span.set_attribute("error.type", kinds[0] if kinds else type(error).__name__)
        self.span.set_status(Status(StatusCode.ERROR, type(error).__name__))

    def _failures(self) -> dict[str, list[PartitionOutcome]]:
        """The partitions that did not go through, by the kind of error."""
        failures: dict[str, list[PartitionOutcome]] = {}
        for partition in self.outcome.failed if self.outcome is not None else ():
            failures.setdefault(type(partition.error).__name__, []).append(partition)
        return failures

    def _summarise(self, outcome: Outcome) -> None:
        logger.info(
            "published %d event(s) of %d partition key(s) in %d send(s); ignored %d, remembered %d, "
            "quarantined %d, unsent %d",
            outcome.published,
            outcome.partitions,
            outcome.sends,
            outcome.ignored,
            outcome.remembered,
            outcome.quarantined.total(),
            outcome.unsent,
            extra=self._fields("relay_batch")
            | {
                "received": self.documents,
                "ignored": outcome.ignored,
                "published": outcome.published,
                "remembered": outcome.remembered,
                "quarantined": outcome.quarantined.total(),
                "unsent": outcome.unsent,
                "partitions": outcome.partitions,
                "sends": outcome.sends,
                "duration_s": round(time.perf_counter() - self.began, 6),
            },
        )
        for reason, count in outcome.quarantined.items():
            logger.warning(
                "quarantined %d document(s): %s. See `python -m relay quarantine list`.",
                count,
                reason,
                extra=self._fields("quarantine") | {"reason": reason, "count": count},
            )

    def _log_failure(self, error: BaseException) -> None:
        if isinstance(error, PublishError):
            for kind, partitions in self._failures().items():
                unsent = sum(partition.unsent for partition in partitions)
                logger.error(
                    "%d event(s) of %d partition key(s) not accepted, to be sent again: %s: %s",
                    unsent,
                    len(partitions),
                    kind,
                    partitions[0].error,
                    extra=self._fields("relay_failed")
                    | {"error": kind, "unsent": unsent, "partitions": len(partitions)},
                )
            return
        logger.error(
            "the invocation failed, and its %d document(s) come again: %s",
            self.documents,
            error if isinstance(error, QuarantineError) else first_line(error),
            extra=self._fields("relay_failed") | {"error": type(error).__name__, "received": self.documents},
        )

    def _fields(self, action: str) -> dict[str, Any]:
        return {"action": action, "invocation_id": self.invocation_id, "retry_count": self.retry_count}


@contextmanager
def attempting(invocation_id: str, retry_count: int, topic: str) -> Iterator[Attempt]:
    """Observe one attempt from its beginning to its end; whatever it raises is told, and goes on.

    The span is a producer's by the conventions for messaging: it sends messages that were created by others, and
    links to where each was. It is a child of the span that the Functions worker may have made current.
    https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
    """
    attributes = {
        "messaging.system": "servicebus",
        "messaging.operation.type": "send",
        "messaging.operation.name": "relay",
        "messaging.destination.name": topic,
    }
    with telemetry.tracer.start_as_current_span(
        "relay",
        kind=SpanKind.PRODUCER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        attempt = Attempt(invocation_id, retry_count, span)
        try:
            yield attempt
        except BaseException as error:
            attempt.ended(error)
            raise
        attempt.ended(None)
