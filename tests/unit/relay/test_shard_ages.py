"""The ages that are reported for the shards that this process reads."""

from __future__ import annotations

from typing import Any

import pytest

from relay.telemetry import instruments
from relay.telemetry.gauges import Headroom, ShardAges
from tests.support.telemetry import Telemetry


def test_a_shard_is_reported_while_it_is_read(reported: Telemetry) -> None:
    ages = ShardAges()
    instruments.observe(Headroom(), ages)
    with ages.watched(0, lambda: 0.0), ages.watched(7, lambda: 12.5):
        meanwhile = reported.metrics()

    ages_s: Any = meanwhile.by("relay.feed.age", "shard")
    assert ages_s == {0: 0.0, 7: 12.5}
    assert meanwhile.units["relay.feed.age"] == "s"
    assert reported.metrics().names == set()


def test_two_readers_of_one_shard_report_the_greater_age() -> None:
    ages = ShardAges()
    with ages.watched(1, lambda: 3.0):
        with ages.watched(1, lambda: 2.0):
            both = ages.ages_s()
        assert ages.ages_s() == both == {1: 3.0}


def test_a_reader_that_fails_is_not_reported_any_more() -> None:
    ages = ShardAges()
    with pytest.raises(RuntimeError), ages.watched(1, lambda: 3.0):
        raise RuntimeError

    assert ages.ages_s() == {}
