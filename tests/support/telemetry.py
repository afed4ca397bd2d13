"""OpenTelemetry's SDK in memory, for tests that read what the relay reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Telemetry:
    """The telemetry reported since the last look."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        tracing = TracerProvider()
        tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        trace.set_tracer_provider(tracing)
        deltas: dict[type, AggregationTemporality] = {
            Counter: AggregationTemporality.DELTA,
            Histogram: AggregationTemporality.DELTA,
            UpDownCounter: AggregationTemporality.DELTA,
        }
        self._reader = InMemoryMetricReader(preferred_temporality=deltas)
        metrics.set_meter_provider(MeterProvider([self._reader]))

    def forget(self) -> None:
        """Drop what was reported so far."""
        self._spans.clear()
        self._reader.get_metrics_data()

    def spans(self, name: str = "relay") -> list[ReadableSpan]:
        """The spans of this name that have ended."""
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def metrics(self) -> Metrics:
        """Collect, as an exporter would."""
        points: dict[str, list[Any]] = defaultdict(list)
        units: dict[str, str] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points[metric.name] += metric.data.data_points
                    units[metric.name] = metric.unit or ""
        return Metrics(points, units)


class Metrics:
    """One collection."""

    def __init__(self, points: Mapping[str, list[Any]], units: Mapping[str, str]) -> None:
        self._points = points
        self.units = units

    @property
    def names(self) -> set[str]:
        """The instruments that reported anything."""
        return {name for name, points in self._points.items() if points}

    def points(self, name: str) -> list[Any]:
        """The data points of an instrument."""
        return list(self._points.get(name, ()))

    def total(self, name: str) -> int:
        """A counter's sum over all attributes."""
        return sum(point.value for point in self._points.get(name, ()))

    def by(self, name: str, attribute: str) -> dict[str, int]:
        """A counter's values by one attribute."""
        return {point.attributes[attribute]: point.value for point in self._points.get(name, ())}

    def count(self, name: str) -> int:
        """How often a histogram was recorded."""
        return sum(point.count for point in self._points.get(name, ()))

    def sum(self, name: str) -> float:
        """The sum of a histogram's values."""
        return float(sum(point.sum for point in self._points.get(name, ())))

    def bounds(self, name: str) -> list[float]:
        """A histogram's bucket boundaries."""
        (point,) = self._points[name]
        return list(point.explicit_bounds)

    def gauge(self, name: str) -> float | None:
        """A gauge's one value, None if it reported none."""
        points = self._points.get(name, [])
        assert len(points) <= 1
        return points[0].value if points else None

    def attributes(self, of: str = "") -> set[str]:
        """Every value of every attribute, of the instruments whose names begin so."""
        points = [point for name, each in self._points.items() if name.startswith(of) for point in each]
        return {str(value) for point in points for value in point.attributes.values()}


@cache
def installed() -> Telemetry:
    """The process's one: OpenTelemetry's providers can be set only once."""
    return Telemetry()
