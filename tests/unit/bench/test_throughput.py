"""The findings of throughput's samples."""

from __future__ import annotations

import pytest

from bench import throughput
from bench.throughput import ONE_EACH, ONE_KEY, TEN_TEN, Results
from bench.turns import Samples

CANDIDATES = ("article", "relay", "SDK, built", "SDK, prebuilt")


def samples(rate: float) -> Samples:
    return Samples(rates=[rate] * 3, processor_us=[100.0] * 3, broker_us=[50.0] * 3, broker_share=[0.5] * 3)


@pytest.fixture
def results() -> Results:
    """Three workloads at two delays; everything at 1,000 events a second."""
    return {
        (delay, workload.name): {name: samples(1000.0) for name in CANDIDATES}
        for delay in (0, 10)
        for workload in (ONE_EACH, TEN_TEN, ONE_KEY)
    }


def test_the_ratio_to_the_article_is_judged_for_the_targets_workloads(results: Results) -> None:
    results[10, "100x1"]["article"] = samples(40.0)
    results[10, "10x10"]["article"] = samples(200.0)

    targets = throughput.findings_of(results).targets

    prefix = "against the article's handler, "
    measured = {target.name.removeprefix(prefix): (target.measured, target.met) for target in targets[:3]}
    assert measured == {"10 ms, 100x1": (25.0, True), "10 ms, 10x10": (5.0, False), "0 ms, 1x100": (1.0, True)}


def test_the_worst_workload_is_judged_against_the_ceilings(results: Results) -> None:
    results[0, "10x10"]["SDK, prebuilt"] = samples(4000.0)

    *_, prebuilt, built = throughput.findings_of(results).targets

    assert prebuilt.name == "share of the ceiling (SDK, prebuilt), worst workload"
    assert (prebuilt.measured, prebuilt.note) == (25.0, "0 ms 10x10, of 6 workloads")
    assert built.met


def test_the_table_shows_which_baseline_cannot_carry_a_workload(results: Results) -> None:
    results[0, "1x100 20 KB"] = {name: samples(1000.0) for name in CANDIDATES} | {"article": Samples()}

    found = throughput.findings_of(results)

    (row,) = (row for table in found.tables for row in table.rows if row[0] == "1x100 20 KB")
    assert (row[1], row[2], row[5], row[6]) == ("cannot", "1,000", "-", "1.00")
