from __future__ import annotations

import pytest

from bench.capacity_flow import Costs, Instance, Shape, latencies, throughput

_FREE = Costs(send=0.0, event=0.0, byte=0.0, single=0.0, wire=0.0)
_COSTLY = Costs(send=0.001, event=0.0001, byte=0.0, single=0.0011, wire=0.0)


def test_one_sender_makes_one_round_trip_at_a_time() -> None:
    assert throughput(Instance(1, 1, 0.010), Shape(100, 1, 300), _FREE) == pytest.approx(100, rel=0.01)


def test_senders_make_round_trips_side_by_side() -> None:
    assert throughput(Instance(1, 20, 0.010), Shape(100, 1, 300), _FREE) == pytest.approx(2000, rel=0.01)


def test_a_page_ends_with_its_last_round_although_most_senders_are_idle_then() -> None:
    # 100 keys on 32 senders are four rounds, the last of them with four keys.
    assert throughput(Instance(1, 32, 0.010), Shape(100, 1, 300), _FREE) == pytest.approx(2500, rel=0.01)


def test_other_leases_use_the_senders_that_one_leaves_idle() -> None:
    assert throughput(Instance(4, 32, 0.010), Shape(100, 1, 300), _FREE) == pytest.approx(3200, rel=0.05)


def test_the_processor_is_the_limit_however_many_senders_there_are() -> None:
    assert throughput(Instance(4, 500, 0.010), Shape(100, 1, 300), _COSTLY) == pytest.approx(1 / 0.0011, rel=0.02)


def test_a_keys_batches_go_out_one_after_another() -> None:
    shape = Shape(keys=1, per_key=100, size=20_000)
    assert len(shape.sends()) == 8
    assert throughput(Instance(1, 32, 0.010), shape, _FREE) == pytest.approx(100 / 0.080, rel=0.01)


def test_a_keys_only_event_is_sent_without_a_batch() -> None:
    costs = Costs(send=0.010, event=0.001, byte=0.0, single=0.002, wire=0.0)
    assert throughput(Instance(1, 1, 0.0), Shape(100, 1, 300), costs) == pytest.approx(500, rel=0.01)
    assert throughput(Instance(1, 1, 0.0), Shape(50, 2, 300), costs) == pytest.approx(2 / 0.012, rel=0.01)


def test_a_batch_holds_no_more_than_its_bytes() -> None:
    assert Shape(1, 100, 20_000, batch_bytes=2**20).sends() == [52, 48]
    assert Shape(1, 3, 500_000).sends() == [1, 1, 1]


def test_a_processor_that_rested_takes_longer_to_begin() -> None:
    costs = Costs(send=0.0, event=0.0, byte=0.0, single=0.001, wire=0.0, wake=0.004)
    seldom = throughput(Instance(1, 1, 0.010), Shape(100, 1, 300), costs)
    assert seldom == pytest.approx(1 / 0.015, rel=0.01)
    without_rest = throughput(Instance(4, 100, 0.010), Shape(100, 1, 300), costs)
    assert without_rest == pytest.approx(1000, rel=0.05)


def test_the_broker_takes_one_send_at_a_time() -> None:
    costs = Costs(send=0.0, event=0.0, byte=0.0, single=0.0, wire=0.0, broker_single=0.002)
    assert throughput(Instance(4, 64, 0.0), Shape(100, 1, 300), costs) == pytest.approx(500, rel=0.02)


def test_documents_of_other_types_cost_their_decoding() -> None:
    costs = Costs(send=0.0, event=0.0, byte=0.0, single=0.001, wire=0.0, document=0.0001)
    shape = Shape(100, 1, 300, others=9.0)
    assert throughput(Instance(1, 1, 0.0), shape, costs) == pytest.approx(500, rel=0.02)
    assert 1 / shape.processor(costs) == pytest.approx(500)


def test_a_seldom_event_waits_half_the_poll_delay_on_average() -> None:
    found = latencies(Instance(1, 1, 0.0, poll_delay=0.5), 1.0, _FREE, size=300, others=0.0, seconds=4000, seed=1)
    assert found[len(found) // 2] == pytest.approx(0.25, abs=0.02)
    assert found[-1] <= 0.5


def test_a_busy_lease_hardly_ever_pauses() -> None:
    slow = Costs(send=0.0, event=0.0, byte=0.0, single=0.0, wire=0.0, page=0.1)
    found = latencies(Instance(1, 32, 0.0, poll_delay=5.0), 200.0, slow, size=300, others=0.0, seconds=60, seed=1)
    assert found[len(found) // 2] < 0.25


def test_what_arrives_during_the_first_pauses_is_not_counted() -> None:
    found = latencies(Instance(1, 1, 0.0, poll_delay=5.0), 100.0, _FREE, size=300, others=0.0, seconds=10, seed=1)
    assert len(found) == pytest.approx(1000, rel=0.15)


def test_the_same_seed_finds_the_same_latencies() -> None:
    def run(seed: int) -> list[float]:
        return latencies(Instance(2, 4, 0.01), 50.0, _COSTLY, size=300, others=1.0, seconds=10, seed=seed)

    assert run(3) == run(3) != run(4)
