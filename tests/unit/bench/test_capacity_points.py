from __future__ import annotations

from itertools import islice

import pytest

from bench.capacity_flow import Costs, Instance, Shape, throughput
from bench.capacity_points import Compared, Point, costs_of
from bench.documents import TWENTY_KB, Workload
from bench.outbox import balanced_keys
from bench.turns import Samples
from outbox_emulators.cosmos.partitioning import PartitionKeyDefinition, locate

_SMALL, _LARGE = 400, 20_000
_COSTS = Costs(
    send=340e-6,
    event=120e-6,
    byte=3e-9,
    single=400e-6,
    wire=200e-6,
    wake=800e-6,
    broker_send=200e-6,
    broker_event=30e-6,
    broker_byte=1e-9,
    broker_single=210e-6,
    broker_wake=500e-6,
    document=7e-6,
)


def _samples(events: int, size: int) -> Samples:
    """What a run of batches of so many events would show, were the costs exactly these."""
    own = _COSTS.sending(events, size, alone=events == 1)
    broker = _COSTS.taking(events, size, alone=events == 1)
    return Samples(
        rates=[events / (own + broker)],
        processor_us=[own / events * 1e6],
        broker_us=[broker * 1e6],
        sends=1000 / events,
    )


def _alone() -> Samples:
    samples = _samples(1, _SMALL)
    own, broker = samples.processor_us[0] + _COSTS.wake * 1e6, samples.broker_us[0] + _COSTS.broker_wake * 1e6
    took = 0.010 + _COSTS.wire + (own + broker) * 1e-6
    return Samples(rates=[1 / took], processor_us=[own], broker_us=[broker], sends=1000.0)


def test_the_costs_are_found_again_in_what_they_make_of_the_workloads() -> None:
    found = costs_of(
        _samples(1, _SMALL),
        _samples(2, _SMALL),
        _samples(100, _SMALL),
        _samples(12, _LARGE),
        _alone(),
        sizes=(_SMALL, _LARGE),
        document=_COSTS.document,
    )
    for name in Costs.__slots__:
        assert getattr(found, name) == pytest.approx(getattr(_COSTS, name), rel=1e-6), name


def test_noise_makes_no_cost_negative() -> None:
    noisy = Samples(rates=[5000.0], processor_us=[100.0], broker_us=[10.0], sends=1000.0)
    found = costs_of(
        noisy, noisy, _samples(100, _SMALL), _samples(12, _SMALL), noisy, sizes=(_SMALL, _LARGE), document=0.0
    )
    assert min(getattr(found, name) for name in Costs.__slots__) >= 0


def test_a_point_is_predicted_with_its_delay_its_shape_and_its_senders() -> None:
    point = Point(Workload(10, 10, size=TWENTY_KB), ack_delay_ms=30, senders=4)
    expected = throughput(Instance(1, 4, 0.030), Shape(10, 10, _LARGE), _COSTS)
    assert point.predicted(_COSTS, _LARGE) == expected


def test_documents_of_other_types_change_no_prediction_where_decoding_is_left_aside() -> None:
    plain, mixed = (Point(Workload(10, 10, others=others), 10, 4) for others in (0.0, 0.5))
    assert plain.predicted(_COSTS, _SMALL) == mixed.predicted(_COSTS, _SMALL)


def test_an_error_is_the_median_of_the_repeats_ratios() -> None:
    compared = Compared("a point", predicted=(110.0, 220.0, 1000.0), measured=(100.0, 200.0, 10.0))
    assert compared.error == pytest.approx(0.10)


def test_balanced_keys_fill_the_physical_partitions_in_turn() -> None:
    definition = PartitionKeyDefinition.from_json({"paths": ["/partitionKey"], "kind": "Hash", "version": 2})
    ranges = definition.split(4)
    keys = list(islice(balanced_keys(4), 40))
    places = [locate(ranges, definition.of_values([key]).effective) for key in keys]
    assert places == [0, 1, 2, 3] * 10
    assert len(set(keys)) == 40
