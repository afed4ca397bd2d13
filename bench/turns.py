"""Candidates take turns at one workload: in every repeat each has one turn, and the order rotates.

Whatever slows this machine for a while slows all of them, so the ratio of two candidates within one repeat is more
reliable than either rate.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.baselines.candidate import Candidate, CannotCarry
from bench.benchmark import Live
from bench.broker import Broker
from bench.documents import Source, Workload


@dataclass(slots=True)
class Samples:
    """One candidate's repeats at one workload; empty where it cannot carry the workload.

    Attributes:
        rates: Domain events a second.
        processor_us: Processor time of this process for each event, in microseconds.
        broker_us: Processor time of the broker for each send, in microseconds.
        broker_share: The share of one processor that the broker used, 0 to 1.
    """

    rates: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    broker_share: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Duration:
    """The wanted length of a turn: as many invocations as fill it, estimated from one that is not counted."""

    seconds: float
    most_invocations: int = 60


async def take_turns(
    candidates: Sequence[Candidate],
    workload: Workload,
    broker: Broker,
    source: Source,
    *,
    repeats: int,
    duration: Duration,
    live: Live,
) -> dict[str, Samples]:
    """Measure open candidates at one workload; returns samples by the candidate's name."""
    found = {candidate.name: Samples() for candidate in candidates}
    invocations: dict[str, int] = {}
    for candidate in candidates:
        try:
            invocations[candidate.name] = await _calibrate(candidate, workload, source, duration)
        except CannotCarry as reason:
            live.step(f"{workload.name}: {candidate.name} is left out: {reason}")
    able = [candidate for candidate in candidates if candidate.name in invocations]
    for repeat in range(repeats):
        shift = repeat % len(able)
        for candidate in able[shift:] + able[:shift]:
            live.step(f"{broker.ack_delay_ms} ms {workload.name}: {candidate.name}, {repeat + 1} of {repeats}")
            samples = found[candidate.name]
            await _turn(candidate, source, workload, invocations[candidate.name], broker, samples)
            live.rate(samples.rates[-1], "events/s")
    return found


async def _calibrate(candidate: Candidate, workload: Workload, source: Source, duration: Duration) -> int:
    await candidate.prepare(source.invocations(workload, 1))
    await candidate.run()
    await candidate.prepare(source.invocations(workload, 1))
    started = time.perf_counter()
    await candidate.run()
    took = time.perf_counter() - started
    return max(1, min(duration.most_invocations, round(duration.seconds / took)))


async def _turn(
    candidate: Candidate, source: Source, workload: Workload, invocations: int, broker: Broker, samples: Samples
) -> None:
    await candidate.prepare(source.invocations(workload, invocations))
    # Garbage from the preparation must not be collected within the turn.
    gc.collect()
    broker_before, own_before, started = broker.processor_seconds(), time.process_time(), time.perf_counter()
    sends = await candidate.run()
    took, own = time.perf_counter() - started, time.process_time() - own_before
    broker_took = broker.processor_seconds() - broker_before
    events = workload.events * invocations
    samples.rates.append(events / took)
    samples.processor_us.append(own / events * 1e6)
    samples.broker_us.append(broker_took / sends * 1e6)
    samples.broker_share.append(broker_took / took)


def ratios(ours: Samples, theirs: Samples) -> tuple[float, ...]:
    """Our rate over theirs, repeat by repeat."""
    return tuple(our / their for our, their in zip(ours.rates, theirs.rates, strict=True))
