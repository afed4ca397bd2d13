"""Targets and plans, candidates that take turns, and the findings of throughput's samples."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from azure.functions import DocumentList

from tests.unit.bench.support import RecordedProgress
from verification.bench import throughput
from verification.bench.benchmark import TIMES, Bound, Plan, Target, interval
from verification.bench.broker import Broker
from verification.bench.documents import Source, Workload
from verification.bench.throughput import SHAPES, Results
from verification.bench.turns import Length, Samples, ratios, take_turns


def test_the_interval_of_few_values_is_from_lowest_to_highest() -> None:
    assert interval([3.0]) == (3.0, 3.0)
    assert interval([3.0, 1.0]) == (1.0, 3.0)
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)


def test_the_interval_of_twenty_values_leaves_out_five_on_each_side() -> None:
    # P(B(20, 1/2) < 6) is 0.0207, and P(B(20, 1/2) < 7) is 0.0577.
    values = [float(number) for number in range(1, 21)]
    random.Random(1).shuffle(values)

    assert interval(values) == (6.0, 15.0)


def test_the_interval_contains_the_true_median_95_times_of_100() -> None:
    draw = random.Random(1)
    true_median = statistics.NormalDist().median

    found = 0
    for _ in range(2000):
        low, high = interval([draw.gauss() for _ in range(20)])
        found += low <= true_median <= high

    assert found / 2000 == pytest.approx(0.9586, abs=0.015)


@pytest.mark.parametrize(
    ("bound", "measured", "met"),
    [
        (Bound.AT_LEAST, 19.9, False),
        (Bound.AT_LEAST, 20.0, True),
        (Bound.AT_MOST, 20.0, True),
        (Bound.AT_MOST, 20.1, False),
    ],
)
def test_a_target_is_judged_by_its_median(bound: Bound, measured: float, met: bool) -> None:
    target = Target("fast", (0.0, measured, 100.0), TIMES, bound, 20.0)

    assert target.met is met
    assert not target.certain
    assert target.wanted == f"{bound.value} 20 {TIMES}"


def test_a_target_is_certain_when_its_whole_interval_is_on_one_side() -> None:
    turns = (19.0, *(21.0 + number for number in range(19)))

    assert Target("fast", turns, TIMES, Bound.AT_LEAST, 20.0).certain
    assert Target("fast", turns, TIMES, Bound.AT_LEAST, 50.0).certain
    assert not Target("fast", turns, TIMES, Bound.AT_LEAST, 26.0).certain


def test_a_plan_picks_by_the_kind_of_run() -> None:
    assert Plan(full=False, seed=1, scratch=Path()).pick(quick=2, full=20) == 2
    assert Plan(full=True, seed=1, scratch=Path()).pick(quick=2, full=20) == 20


# Candidates take turns


WORKLOAD = Workload(keys=2, per_key=2)


class IdleBroker:
    """A broker that uses no processor time."""

    ack_delay_ms = 0

    def processor_seconds(self) -> float:
        return 0.0

    def on_a_core_of_its_own(self) -> AbstractContextManager[None]:
        return nullcontext()


class Recorder:
    """A candidate that records when it ran, and with which ids."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self.name = name
        self.identifiers: list[str] = []
        self._ran = ran
        self._prepared: Sequence[DocumentList] = ()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        self._prepared = invocations
        self.identifiers += [document["id"] for documents in invocations for document in documents]

    async def run(self) -> int:
        self._ran.append(self.name)
        await asyncio.sleep(0)
        return 2 * len(self._prepared)


async def turns(*candidates: Recorder, repeats: int = 3) -> tuple[dict[str, Samples], RecordedProgress]:
    progress = RecordedProgress()
    broker = cast(Broker, cast(Any, IdleBroker()))
    length = Length(repeats, seconds=0.0)
    found = await take_turns(candidates, WORKLOAD, broker, Source(1), length, progress)
    return found, progress


async def test_every_candidate_has_one_turn_per_repeat_and_the_order_rotates() -> None:
    ran: list[str] = []

    found, _ = await turns(Recorder("a", ran), Recorder("b", ran), Recorder("c", ran))

    calibration, measured = ran[:6], ran[6:]
    assert calibration == ["a", "a", "b", "b", "c", "c"]
    assert measured == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {name: len(samples.rates) for name, samples in found.items()} == {"a": 3, "b": 3, "c": 3}


async def test_no_id_is_used_in_two_turns() -> None:
    candidates = [Recorder(name, []) for name in "ab"]

    await turns(*candidates)

    identifiers = [identifier for each in candidates for identifier in each.identifiers]
    assert len(set(identifiers)) == len(identifiers) == 2 * (2 + 3) * WORKLOAD.events


async def test_every_turn_is_reported_with_its_rate() -> None:
    _, progress = await turns(Recorder("a", []), repeats=2)

    assert progress.steps == ["0 ms 2x2: a, 1 of 2", "0 ms 2x2: a, 2 of 2"]
    assert [unit for _, unit in progress.rates] == ["events/s", "events/s"]


def test_ratios_are_taken_within_each_repeat() -> None:
    ours, theirs = Samples(rates=[20.0, 30.0]), Samples(rates=[10.0, 10.0])

    assert ratios(ours, theirs) == pytest.approx((2.0, 3.0))


# The findings of throughput's samples


def samples(rate: float) -> Samples:
    return Samples(rates=[rate] * 3, processor_us=[100.0] * 3, broker_share=[0.5] * 3)


@pytest.fixture
def results() -> Results:
    """Three shapes at two delays, as a quick run measures them; everything at 1,000 events a second."""
    found: Results = {
        (delay, workload.name): {name: samples(1000.0) for name in ("article", "relay", "SDK, prebuilt")}
        for delay in (0, 10)
        for workload in SHAPES
    }
    found[0, "1x100"]["article, same message"] = samples(400.0)
    found[10, "100x1"]["wire"] = samples(1250.0)
    return found


def targets(results: Results) -> dict[str, Target]:
    return {target.name: target for target in throughput.findings_of(results).targets}


def test_each_ratio_is_taken_at_the_shape_and_delay_of_its_target(results: Results) -> None:
    results[10, "100x1"]["article"] = samples(25.0)
    results[10, "10x10"]["article"] = samples(200.0)

    found = {name: (each.measured, each.wanted, each.met) for name, each in targets(results).items()}

    handler = "against the article's handler"
    assert found == {
        f"100 keys with an event each, 10 ms, {handler}": (40.0, f"≥ 40 {TIMES}", True),
        f"10 keys with 10 events each, 10 ms, {handler}": (5.0, f"≥ 9 {TIMES}", False),
        f"1x100, 0 ms, {handler}, same message": (2.5, f"≥ 2 {TIMES}", True),
        "against batches that the SDK sends prebuilt, worst shape": (100.0, "≥ 60 %", True),
        "100x1, 10 ms, against the wire": (80.0, "≥ 85 %", False),
        "processor time for an event, all included, 100x1, 10 ms": (100.0, "≤ 200 µs", True),
    }


def test_the_worst_shape_is_the_one_with_the_lowest_median_and_is_named(results: Results) -> None:
    results[0, "10x10"]["SDK, prebuilt"] = samples(4000.0)
    # A single bad turn, which does not make this shape the worst.
    results[10, "100x1"]["relay"].rates[0] = 1.0

    worst = targets(results)["against batches that the SDK sends prebuilt, worst shape"]

    assert (worst.measured, worst.note) == (25.0, "10x10, 0 ms")


def test_the_table_leaves_out_what_was_not_measured(results: Results) -> None:
    at_once, later = throughput.findings_of(results).tables

    assert at_once.columns[:5] == ("workload", "article", "article, same message", "relay", "SDK, prebuilt")
    assert [row[2] for row in at_once.rows] == ["-", "-", "400"]
    assert later.columns[4:6] == ("wire", "relay, µs/event")
    assert later.rows[0] == ("100x1", "1,000", "1,000", "1,000", "1,250", "100", "50 %", "50 %")
