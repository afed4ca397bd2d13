from __future__ import annotations

import pytest

from local.soak.judgement import Judgement

MIB = 2**20


@pytest.mark.parametrize(
    ("missing", "rss_mib", "flat", "passed"),
    [
        (0, [100, 130, 131, 136], True, True),
        (0, [100, 130, 131, 137], False, False),
        (0, [100, 130], False, False),
        (1, [100, 130, 130], True, False),
        (-1, [100, 130, 130], True, False),
    ],
    ids=["flat", "grown", "too few samples", "one is missing", "one is there twice"],
)
def test_a_soak_passes_only_if_memory_is_flat_and_everything_is_there_once(
    missing: int, rss_mib: list[int], flat: bool, passed: bool
) -> None:
    judgement = Judgement.of(300, missing, 1.0, [size * MIB for size in rss_mib])

    assert (judgement.flat, judgement.passed) == (flat, passed)
    assert judgement.summary()["missing"] == missing
