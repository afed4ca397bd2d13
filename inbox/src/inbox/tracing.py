"""Continues the trace of the request that raised an event, if opentelemetry-api is installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from inbox.messages import Message

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:

    def processing(message: Message) -> AbstractContextManager[object]:
        """Return an empty block: opentelemetry-api (the extra `telemetry`) is not installed."""
        return nullcontext()

else:
    _tracer = trace.get_tracer("inbox")
    _propagator = TraceContextTextMapPropagator()

    def processing(message: Message) -> AbstractContextManager[object]:
        """Return a block in which the handler's span is current: a child of `traceparent`, if there is one.

        Names and attributes follow the semantic conventions for messaging spans.
        """
        carrier = {"traceparent": message.traceparent} if message.traceparent else {}
        return _tracer.start_as_current_span(
            f"process {message.action}".rstrip(),
            context=_propagator.extract(carrier),
            kind=trace.SpanKind.CONSUMER,
            attributes={
                "messaging.system": "servicebus",
                "messaging.operation.type": "process",
                "messaging.message.id": message.id,
                "messaging.servicebus.message.delivery_count": message.delivery_count,
            },
        )
