"""Candidates take turns at one workload: in every repeat each has one turn, and the order rotates.

Whatever slows this machine for a while slows all of them, so the ratio of two candidates within one repeat is more
reliable than either rate. Turns are short, so that what lasts seconds does not fall into one candidate's alone.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from verification.bench.baselines.candidate import Candidate
from verification.bench.benchmark import Live
from verification.bench.broker import Broker
from verification.bench.documents import Source, Workload


@dataclass(slots=True)
class Samples:
    """One candidate's turns at one workload.

    Attributes:
        rates: Domain events a second.
        processor_us: Processor time of this process for each event, in microseconds.
        broker_share: The share of one processor that the broker used, 0 to 1.
    """

    rates: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)
    broker_share: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Length:
    """How long to measure.

    Attributes:
        repeats: Turns of each candidate.
        seconds: Of a turn: it has as many invocations as fill it, estimated from one that is not counted.
        most_invocations: The most in a turn: they are prepared, and held in memory, before it.
    """

    repeats: int
    seconds: float
    most_invocations: int = 60


async def take_turns(
    candidates: Sequence[Candidate], workload: Workload, broker: Broker, source: Source, length: Length, live: Live
) -> dict[str, Samples]:
    """Measure open candidates at one workload; returns samples by the candidate's name."""
    found = {candidate.name: Samples() for candidate in candidates}
    with _old_objects_frozen(), broker.on_a_core_of_its_own():
        invocations = {each.name: await _calibrate(each, workload, source, length) for each in candidates}
        for repeat in range(length.repeats):
            shift = repeat % len(candidates)
            for candidate in (*candidates[shift:], *candidates[:shift]):
                turn = f"{candidate.name}, {repeat + 1} of {length.repeats}"
                live.step(f"{broker.ack_delay_ms} ms {workload.name}: {turn}")
                samples = found[candidate.name]
                await _turn(candidate, source, workload, invocations[candidate.name], broker, samples)
                live.rate(samples.rates[-1], "events/s")
    return found


@contextmanager
def _old_objects_frozen() -> Iterator[None]:
    """Garbage collection leaves out what exists: looking at it before each turn would take as long as the turn."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _calibrate(candidate: Candidate, workload: Workload, source: Source, length: Length) -> int:
    await candidate.prepare(source.invocations(workload, 1))
    await candidate.run()
    await candidate.prepare(source.invocations(workload, 1))
    started = time.perf_counter()
    await candidate.run()
    took = time.perf_counter() - started
    return max(1, min(length.most_invocations, round(length.seconds / took)))


async def _turn(
    candidate: Candidate, source: Source, workload: Workload, invocations: int, broker: Broker, samples: Samples
) -> None:
    await candidate.prepare(source.invocations(workload, invocations))
    # Garbage from the preparation must not be collected within the turn.
    gc.collect()
    broker_before, own_before, started = broker.processor_seconds(), time.process_time(), time.perf_counter()
    await candidate.run()
    took, own = time.perf_counter() - started, time.process_time() - own_before
    broker_took = broker.processor_seconds() - broker_before
    events = workload.events * invocations
    samples.rates.append(events / took)
    samples.processor_us.append(own / events * 1e6)
    samples.broker_share.append(broker_took / took)


def ratios(ours: Samples, theirs: Samples) -> tuple[float, ...]:
    """Return our rate over theirs, repeat by repeat."""
    return tuple(our / their for our, their in zip(ours.rates, theirs.rates, strict=True))
