"""What throughput's samples come to."""

from __future__ import annotations

import pytest

from bench import throughput
from bench.throughput import ONE_EACH, ONE_KEY, TEN_TEN, Results
from bench.turns import Samples

RIVALS = ("article", "relay", "SDK, built", "SDK, prebuilt")


def samples(rate: float) -> Samples:
    return Samples(rates=[rate] * 3, processor_us=[100.0] * 3, broker_us=[50.0] * 3, broker_share=[0.5] * 3)


@pytest.fixture
def results() -> Results:
    """Three workloads at two delays; the relay is at 1,000 events a second, and rivals beside it."""
    return {
        (delay, workload.name): {name: samples(1000.0) for name in RIVALS}
        for delay in (0, 10)
        for workload in (ONE_EACH, TEN_TEN, ONE_KEY)
    }


def test_the_article_is_judged_where_the_targets_say(results: Results) -> None:
    results[10, "100x1"]["article"] = samples(40.0)
    results[10, "10x10"]["article"] = samples(200.0)

    targets = {target.key: target for target in throughput.findings_of(results).targets}

    measured = {key: (target.measured, target.met) for key, target in targets.items() if key.startswith("article")}
    assert measured == {
        "article-10-100x1": (25.0, True),
        "article-10-10x10": (5.0, False),
        "article-0-1x100": (1.0, True),
    }


def test_of_the_ceiling_the_worst_workload_counts(results: Results) -> None:
    results[0, "10x10"]["SDK, prebuilt"] = samples(4000.0)

    targets = {target.key: target for target in throughput.findings_of(results).targets}

    assert targets["SDK, prebuilt"].measured == 25.0
    assert "0 ms 10x10" in targets["SDK, prebuilt"].figure.note
    assert targets["SDK, built"].met


def test_a_rival_that_cannot_carry_a_workload_is_told_in_the_table(results: Results) -> None:
    results[0, "1x100 20 KB"] = {name: samples(1000.0) for name in RIVALS} | {
        "article": Samples(cannot="too large")
    }

    found = throughput.findings_of(results)

    (row,) = (row for table in found.tables for row in table.rows if row[0] == "1x100 20 KB")
    assert row[1] == "cannot"
    assert not any("1x100 20 KB/article" in figure.name for figure in found.figures)
