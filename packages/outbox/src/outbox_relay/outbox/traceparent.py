"""The current trace, which event documents carry: https://www.w3.org/TR/trace-context/#traceparent-header."""

from __future__ import annotations

try:
    from opentelemetry.trace import get_current_span
except ImportError:

    def current() -> str | None:
        """Return None: opentelemetry-api (the extra `telemetry`) is not installed."""
        return None

else:

    def current() -> str | None:
        """Return the current span as a `traceparent`, or None if there is no valid span."""
        span = get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
