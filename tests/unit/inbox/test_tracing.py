"""The handler's span continues the trace of the request that raised the event."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import inbox
from inbox import tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("inbox"))
    return exporter


def message(traceparent: str | None) -> inbox.Message:
    return inbox.Message(id="a", key="k", body=b"", action="Placed", traceparent=traceparent)


def test_the_span_is_a_child_of_the_traceparent(spans: InMemorySpanExporter) -> None:
    with tracing.processing(message(f"00-{TRACE}-{PARENT}-01")):
        assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == TRACE
    (span,) = spans.get_finished_spans()

    assert (span.name, span.kind) == ("process Placed", trace.SpanKind.CONSUMER)
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("traceparent", [None, "no traceparent"])
def test_without_a_trace_it_begins_one(spans: InMemorySpanExporter, traceparent: str | None) -> None:
    with tracing.processing(message(traceparent)):
        pass
    (span,) = spans.get_finished_spans()

    assert span.parent is None


def test_without_opentelemetry_there_is_no_span() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
import inbox
from inbox import tracing
with tracing.processing(inbox.Message(id="a", key="k", body=b"")):
    print("handled")
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=50)
    assert ran.stdout == "handled\n"
