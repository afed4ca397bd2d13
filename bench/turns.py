"""Rivals take turns at one workload: in every repeat each has one turn, and the order rotates.

So whatever slows this machine for a while slows all of them, and the ratio of two rivals within one repeat means
more than either rate.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.benchmark import Live
from bench.broker import Broker
from bench.documents import Source, Workload
from bench.rivals.rival import CannotCarry, Rival


@dataclass(slots=True)
class Samples:
    """One rival's repeats at one workload.

    Attributes:
        rates: Domain events a second.
        processor_us: Processor time of this process for each event, in microseconds.
        broker_us: Processor time of the broker for each send, in microseconds.
        broker_share: The share of one processor that the broker used.
        sends: Sends a thousand events.
        cannot: Why there are none, where the rival cannot carry the workload.
    """

    rates: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    broker_share: list[float] = field(default_factory=list)
    sends: float = 0.0
    cannot: str = ""


@dataclass(frozen=True, slots=True)
class Duration:
    """How long a turn is to be: as many invocations as about fill it, judged by one that is not counted."""

    seconds: float
    most_invocations: int = 60


async def take_turns(
    rivals: Sequence[Rival],
    workload: Workload,
    broker: Broker,
    source: Source,
    *,
    repeats: int,
    duration: Duration,
    live: Live,
) -> dict[str, Samples]:
    """Measure open rivals at one workload.

    Returns:
        Samples by the rival's name, `repeats` of each; none where a rival cannot carry the workload.
    """
    found = {rival.name: Samples() for rival in rivals}
    invocations: dict[str, int] = {}
    for rival in rivals:
        try:
            invocations[rival.name] = await _calibrate(rival, workload, source, duration)
        except CannotCarry as reason:
            found[rival.name].cannot = str(reason)
    able = [rival for rival in rivals if rival.name in invocations]
    for repeat in range(repeats):
        shift = repeat % len(able)
        for rival in able[shift:] + able[:shift]:
            live.step(f"{broker.ack_delay_ms} ms {workload.name}: {rival.name}, {repeat + 1} of {repeats}")
            samples = found[rival.name]
            await _turn(rival, source, workload, invocations[rival.name], broker, samples)
            live.rate(samples.rates[-1], "events/s")
    return found


async def _calibrate(rival: Rival, workload: Workload, source: Source, duration: Duration) -> int:
    await rival.prepare(source.invocations(workload, 1))
    await rival.run()
    await rival.prepare(source.invocations(workload, 1))
    started = time.perf_counter()
    await rival.run()
    took = time.perf_counter() - started
    return max(1, min(duration.most_invocations, round(duration.seconds / took)))


async def _turn(
    rival: Rival, source: Source, workload: Workload, invocations: int, broker: Broker, samples: Samples
) -> None:
    await rival.prepare(source.invocations(workload, invocations))
    # What preparing has left behind is not for the turn to clean up.
    gc.collect()
    broker_before, own_before, started = broker.processor_seconds(), time.process_time(), time.perf_counter()
    sends = await rival.run()
    took, own = time.perf_counter() - started, time.process_time() - own_before
    broker_took = broker.processor_seconds() - broker_before
    events = workload.events * invocations
    samples.rates.append(events / took)
    samples.processor_us.append(own / events * 1e6)
    samples.broker_us.append(broker_took / sends * 1e6)
    samples.broker_share.append(broker_took / took)
    samples.sends = sends / events * 1000


def ratios(ours: Samples, theirs: Samples) -> tuple[float, ...]:
    """Our rate over theirs, repeat by repeat."""
    return tuple(our / their for our, their in zip(ours.rates, theirs.rates, strict=True))


def middle(values: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return statistics.median(values) if values else float("nan")
