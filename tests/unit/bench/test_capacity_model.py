from __future__ import annotations

from dataclasses import replace

import pytest

from bench.capacity_model import Ceiling, Demand, Deployment, ceilings, forecast, plan, ru_per_event
from bench.capacity_rates import MEASURED, Tier, read_ru, write_ru


def _rate(found: tuple[Ceiling, ...], beginning: str) -> float:
    (rate,) = [ceiling.rate for ceiling in found if ceiling.name.startswith(beginning)]
    return rate


def test_on_standard_an_event_costs_a_credit_to_send_and_two_for_each_subscription() -> None:
    deployment = Deployment(tier=Tier.STANDARD)
    assert _rate(ceilings(Demand(100), deployment), "Standard") == pytest.approx(1000 / 3)
    assert _rate(ceilings(Demand(100, subscriptions=2), deployment), "Standard") == pytest.approx(200)


def test_limits_come_lowest_first() -> None:
    rates = [ceiling.rate for ceiling in ceilings(Demand(100), Deployment(tier=Tier.STANDARD))]
    assert rates == sorted(rates)


def test_the_round_trip_limits_few_senders() -> None:
    found = ceilings(Demand(100), Deployment(senders=4, units=16))
    assert _rate(found, "senders' round trips") < _rate(found, "processor")
    assert _rate(found, "senders' round trips") == pytest.approx(4 / 0.011, rel=0.1)


def test_more_instances_than_physical_partitions_add_nothing() -> None:
    four, eight = (ceilings(Demand(100), Deployment(instances=number)) for number in (4, 8))
    assert four == eight


def test_together_the_limits_are_no_higher_than_each_alone() -> None:
    for senders in (4, 32):
        found = ceilings(Demand(100), Deployment(senders=senders))
        alone = min(_rate(found, "senders' round trips"), _rate(found, "processor"))
        assert _rate(found, "instances") <= alone * 1.03


def test_a_demand_beyond_a_limit_has_no_latency() -> None:
    found = forecast(Demand(500), Deployment(tier=Tier.STANDARD))
    assert found.p50_ms is None
    assert found.p99_ms is None
    assert found.first.name.startswith("Standard")


def test_at_a_low_rate_latency_is_half_the_poll_delay_and_the_way() -> None:
    found = forecast(Demand(5), Deployment(poll_delay_ms=1000))
    assert found.p50_ms == pytest.approx(500 + 20 + 10, abs=40)
    assert found.p99_ms is not None
    assert found.p99_ms < 1000 + 100


def test_too_many_connections_are_a_limit_of_zero() -> None:
    found = forecast(Demand(5), Deployment(partitions=100, instances=100, senders=64))
    assert found.first == Ceiling("connections of the namespace", 0.0, "fewer instances or senders")


@pytest.mark.parametrize("rate", [10, 300, 3000])
def test_a_plan_keeps_the_reserve_it_was_asked_for(rate: float) -> None:
    demand = Demand(rate)
    chosen = plan(demand, Deployment(tier=Tier.STANDARD), headroom=0.5)
    assert all(ceiling.rate >= rate / 0.5 for ceiling in ceilings(demand, chosen))


def test_a_plan_has_no_instance_too_many() -> None:
    demand = Demand(3000)
    chosen = plan(demand, Deployment())
    fewer = ceilings(demand, replace(chosen, instances=chosen.instances - 1))
    assert min(ceiling.rate for ceiling in fewer) < 3000 / 0.7


def test_a_plan_leaves_standard_once_its_credits_are_too_few() -> None:
    assert plan(Demand(200), Deployment(tier=Tier.STANDARD)).tier is Tier.STANDARD
    assert plan(Demand(300), Deployment(tier=Tier.STANDARD)).tier is Tier.PREMIUM


def test_what_sixteen_messaging_units_cannot_carry_has_no_plan() -> None:
    with pytest.raises(ValueError, match="16 messaging units are too few"):
        plan(Demand(16_667, size=20_000), Deployment())


def test_what_one_instance_a_partition_cannot_relay_has_no_plan() -> None:
    with pytest.raises(ValueError, match="one instance a physical partition is too few"):
        plan(Demand(3000, ttl_days=0, others=0), Deployment(processor_share=0.05))


def test_stored_events_ask_for_partitions_of_their_own() -> None:
    kept = plan(Demand(1000, ttl_days=100), Deployment())
    assert kept.partitions == 1000 * 500 * 86_400 * 100 // 50_000_000_000 + 1


def test_request_units_are_those_of_the_next_larger_documented_size() -> None:
    assert write_ru(500) == 4.95
    assert write_ru(1500) == 6.29
    assert read_ru(4096) == 1.14
    assert write_ru(256 * 1024) == pytest.approx(2 * 48.19)
    assert ru_per_event(Demand(1, others=2.0)) == pytest.approx(3 * 5.95)


def test_a_smaller_part_of_a_core_relays_less() -> None:
    half, whole = (ceilings(Demand(100), Deployment(processor_share=share), MEASURED) for share in (0.5, 1.0))
    assert _rate(whole, "processor") == pytest.approx(2 * _rate(half, "processor"))


def test_a_plan_goes_by_what_all_limits_together_let_through() -> None:
    demand, two = Demand(1, ttl_days=0, others=0), Deployment(partitions=16, instances=2, senders=8, units=16)
    found = ceilings(demand, two)
    together, alone = _rate(found, "instances"), _rate(found, "senders' round trips")
    assert together < 0.99 * alone
    chosen = plan(replace(demand, rate=(together + alone) / 2), two, headroom=1)
    assert (chosen.partitions, chosen.instances) == (16, 3)
