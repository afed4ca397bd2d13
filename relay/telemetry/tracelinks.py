"""From the `traceparent` of stored events to what a span can link to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.trace import SpanContext, TraceFlags

# https://www.w3.org/TR/trace-context/#traceparent-header: a later version may have more fields behind these.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def span_contexts(traceparents: Iterable[Any], limit: int) -> Iterator[SpanContext]:
    """The first `limit` distinct valid ones; others are skipped."""
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
    """The span context of a W3C traceparent; None where it is not valid."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return context if context.is_valid else None
