"""`python -m verification.bench.owncost`: the relay's processor time for an event, in its own process.

With `--telemetry` OpenTelemetry's SDK is configured as the Functions worker configures it, but for exporters that
take next to nothing. A process cannot take that back, which is why this is not measured in the benchmarks' own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import time
from dataclasses import dataclass

from local.stack.parts import output_of
from relay.backends.cosmos.backend import CosmosRelay
from verification.bench.documents import Source, Workload
from verification.bench.offline import AcceptingSenders, encode_again, offline_relay
from verification.bench.throughput import SHAPES

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class OwnCost:
    """Processor time for an event in microseconds: of everything, and of the encoding in it."""

    whole: float
    encoding: float

    @property
    def own(self) -> float:
        """The part of the cost that remains without the encoding."""
        return self.whole - self.encoding


async def in_a_process(repeats: int, invocations: int, seed: int, *, telemetry: bool) -> dict[str, list[OwnCost]]:
    """Measure every shape, `repeats` times; by the name of the workload. RuntimeError if the process fails."""
    numbers = {"--repeats": repeats, "--invocations": invocations, "--seed": seed}
    options = [str(each) for pair in numbers.items() for each in pair]
    printed = await output_of(
        *("-m", "verification.bench.owncost", *options, *(["--telemetry"] if telemetry else [])),
        within_s=_TIMEOUT_S,
    )
    return {name: [OwnCost(*each) for each in values] for name, values in json.loads(printed).items()}


async def _measure(
    relay: CosmosRelay, senders: AcceptingSenders, source: Source, workload: Workload, invocations: int
) -> OwnCost:
    whole = encoding = 0.0
    # One after the other, so that a temporary slowdown of this machine affects both.
    for documents in source.invocations(workload, invocations):
        senders.accepted.clear()
        gc.collect()
        started = time.process_time()
        await relay.handle(documents, "bench")
        whole += time.process_time() - started
        messages = [list(transfer.messages()) for transfer in senders.accepted]
        started = time.process_time()
        encode_again(messages)
        encoding += time.process_time() - started
    each = invocations * workload.events / 1e6
    return OwnCost(whole / each, encoding / each)


async def _measure_all(repeats: int, invocations: int, seed: int) -> dict[str, list[tuple[float, float]]]:
    source = Source(seed)
    found: dict[str, list[tuple[float, float]]] = {}
    with offline_relay() as (relay, senders):
        for _ in range(repeats):
            for workload in SHAPES:
                cost = await _measure(relay, senders, source, workload, invocations)
                found.setdefault(workload.name, []).append((cost.whole, cost.encoding))
    return found


def configure_telemetry() -> None:
    """Configure OpenTelemetry's SDK, with a reader and an exporter that take next to nothing."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class Dropping(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(Dropping()))
    trace.set_tracer_provider(tracing)


def main() -> None:
    """Measure, and print JSON: for each workload, pairs of microseconds, whole and encoding."""
    parser = argparse.ArgumentParser(prog="python -m verification.bench.owncost", description=__doc__)
    parser.add_argument("--telemetry", action="store_true", help="with OpenTelemetry's SDK")
    for name in ("--repeats", "--invocations", "--seed"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    logging.getLogger("relay").setLevel(logging.INFO)
    if arguments.telemetry:
        configure_telemetry()
    print(json.dumps(asyncio.run(_measure_all(arguments.repeats, arguments.invocations, arguments.seed))))


if __name__ == "__main__":
    main()
