"""The trace a change belongs to, for the consumers of its events:
https://www.w3.org/TR/trace-context/#traceparent-header.
"""

from __future__ import annotations

try:
    from opentelemetry.trace import get_current_span
except ImportError:

    def current() -> str | None:
        """None: opentelemetry-api is not installed (the extra `telemetry`)."""
        return None

else:

    def current() -> str | None:
        """The current span as a `traceparent`, None where there is no valid one."""
        span = get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
