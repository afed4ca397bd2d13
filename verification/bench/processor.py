"""Processor time: what the relay adds to encoding an event, and what a document of another type costs."""

from __future__ import annotations

import gc
import time

from verification.bench.benchmark import Bound, Findings, Live, Plan, Table, Target, median
from verification.bench.documents import Source
from verification.bench.offline import offline_relay
from verification.bench.owncost import in_a_process

_TARGET_US, _TELEMETRY_TARGET_US = 15.0, 25.0
_TELEMETRY = {"": False, " with telemetry": True}
_OTHER_TARGET_US = 1.0
_OTHERS_PER_BATCH = 1000
_INVOCATIONS = 20


class Processor:
    """Processor time for each event and each ignored document."""

    name = "processor"
    about = "the relay's own processor time for an event, and for a document of another type"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings = Findings()
        repeats, invocations = plan.pick(quick=20, full=25), plan.pick(quick=5, full=20)
        rows = []
        for words, telemetry in _TELEMETRY.items():
            live.step(f"processor time for an event{words}")
            costs = await in_a_process(repeats, invocations, plan.seed, telemetry=telemetry)
            for name, values in costs.items():
                own = tuple(each.own for each in values)
                live.rate(median(own), "µs/event")
                what = f"the relay's own time for an event{words}, {name}"
                limit = _TELEMETRY_TARGET_US if telemetry else _TARGET_US
                findings.targets.append(Target(what, own, "µs", Bound.AT_MOST, limit))
                parts = ([getattr(each, part) for each in values] for part in ("whole", "encoding", "own"))
                rows.append((name + words, *(f"{median(part):.1f}" for part in parts)))
        columns = ("workload", "relay, µs/event", "of which encoding, µs/event", "the relay's own, µs/event")
        prose = (
            "Without a network: senders accept at once. The relay's own is all but the AMQP encoding. The "
            "telemetry is OpenTelemetry's SDK with an exporter that takes next to nothing."
        )
        findings.tables.append(Table("Processor time for an event", columns, tuple(rows), prose))
        findings.targets.append(await _another_type(plan, live))
        return findings


async def _another_type(plan: Plan, live: Live) -> Target:
    source = Source(plan.seed)
    contacts = [source.contact() for _ in range(_OTHERS_PER_BATCH)]
    values = []
    with offline_relay() as (relay, _):
        for repeat in range(plan.pick(quick=20, full=50)):
            live.step(f"documents of another type, {repeat + 1}")
            documents = source.decoded(contacts)
            gc.collect()
            started = time.process_time()
            for _ in range(_INVOCATIONS):
                await relay.handle(documents, "bench")
            values.append((time.process_time() - started) / (_INVOCATIONS * _OTHERS_PER_BATCH) * 1e6)
            live.rate(values[-1], "µs/document")
    return Target("a document of another type, decoded", tuple(values), "µs", Bound.AT_MOST, _OTHER_TARGET_US)
