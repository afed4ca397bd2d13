"""Processor time: what the relay adds to encoding an event, and what a document of another type costs."""

from __future__ import annotations

import gc
import time

from bench.benchmark import Bound, Findings, Live, Plan, Table, Target, median
from bench.documents import Source, Workload
from bench.offline import encode_again, offline_relay
from bench.throughput import IN_WORDS, SHAPES

_TARGET_US = 15.0
_OTHER_TARGET_US = 1.0
_OTHERS_PER_BATCH = 1000
_INVOCATIONS = 20


class Processor:
    """Processor time for each event and each ignored document."""

    name = "processor"
    about = "the relay's own processor time for an event, and for a document of another type"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings = Findings()
        rows = [await _own(workload, plan, live, findings) for workload in SHAPES]
        columns = ("workload", "relay, µs/event", "of which encoding, µs/event", "the relay's own, µs/event")
        prose = (
            "Without a network: senders accept each transfer at once. The relay's own is what remains without the "
            "AMQP encoding of messages and batches."
        )
        findings.tables.append(Table("Processor time for an event", columns, tuple(rows), prose))
        findings.targets.append(await _another_type(plan, live))
        return findings


async def _own(workload: Workload, plan: Plan, live: Live, findings: Findings) -> tuple[str, ...]:
    source = Source(plan.seed)
    repeats, invocations = plan.pick(quick=20, full=25), plan.pick(quick=5, full=20)
    wholes: list[float] = []
    encodings: list[float] = []
    with offline_relay() as (relay, senders):
        for repeat in range(repeats):
            live.step(f"processor time, {workload.name}, {repeat + 1} of {repeats}")
            whole = encoding = 0.0
            # One after the other, so that whatever slows this machine for a while slows both.
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
            wholes.append(whole / invocations / workload.events * 1e6)
            encodings.append(encoding / invocations / workload.events * 1e6)
            live.rate(wholes[-1] - encodings[-1], "µs/event")
    own = tuple(whole - encoding for whole, encoding in zip(wholes, encodings, strict=True))
    name = f"the relay's own processor time for an event, {IN_WORDS[workload.name]}"
    findings.targets.append(Target(name, own, "µs", Bound.AT_MOST, _TARGET_US))
    return (workload.name, *(f"{median(each):.1f}" for each in (wholes, encodings, own)))


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
