"""The findings of throughput's samples."""

from __future__ import annotations

import pytest

from bench import throughput
from bench.benchmark import TIMES, Target
from bench.throughput import SHAPES, Results
from bench.turns import Samples


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
        f"one key with 100 events, 0 ms, {handler}, same message": (2.5, f"≥ 2 {TIMES}", True),
        "against batches that the SDK sends prebuilt, worst shape": (100.0, "≥ 60 %", True),
        "100 keys with an event each, 10 ms, against the wire": (80.0, "≥ 85 %", False),
        "processor time for an event, all included, 100 keys with an event each, 10 ms": (100.0, "≤ 200 µs", True),
    }


def test_the_worst_shape_is_the_one_with_the_lowest_median_and_is_named(results: Results) -> None:
    results[0, "10x10"]["SDK, prebuilt"] = samples(4000.0)
    # A single bad turn, which does not make this shape the worst.
    results[10, "100x1"]["relay"].rates[0] = 1.0

    worst = targets(results)["against batches that the SDK sends prebuilt, worst shape"]

    assert (worst.measured, worst.note) == (25.0, "10 keys with 10 events each, 0 ms")


def test_the_table_leaves_out_what_was_not_measured(results: Results) -> None:
    at_once, later = throughput.findings_of(results).tables

    assert at_once.columns[:5] == ("workload", "article", "article, same message", "relay", "SDK, prebuilt")
    assert [row[2] for row in at_once.rows] == ["-", "-", "400"]
    assert later.columns[4:6] == ("wire", "relay, µs/event")
    assert later.rows[0] == ("100x1", "1,000", "1,000", "1,000", "1,250", "100", "50 %", "50 %")
