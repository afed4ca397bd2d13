"""The capacity model and its page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import capacity, capacity_page
from bench.__main__ import published
from bench.benchmark import Table
from bench.capacity import Case, Costs, Limit, limits, plan, relay_limits, request_units, service_bus_limit
from bench.report import Report

COSTS = Costs(single=300e-6, send=200e-6, event=100e-6, document=5e-6)


def rate(found: list[Limit], name: str) -> float:
    (limit,) = [limit for limit in found if limit.name == name]
    return limit.rate


def test_the_page_is_rendered_from_the_published_results() -> None:
    text = capacity_page.PAGE.read_text(encoding="utf-8")

    assert capacity_page.rendered(text, published()) == text, "python -m bench.capacity_page renders it again"
    changed = text.replace("| 100 | Standard, ", "| 100 | Standard, 1")
    assert changed != text
    assert capacity_page.rendered(changed, published()) == text


def test_every_table_is_on_the_page() -> None:
    text = capacity_page.PAGE.read_text(encoding="utf-8")

    assert all(text.count(f"<!-- table: {name} -->") == 1 for name in capacity_page.TABLES)


def test_an_unknown_table_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        capacity_page.rendered("<!-- table: nonsense -->\n<!-- end -->", published())


def test_costs_are_derived_from_batches_of_one_ten_and_a_hundred() -> None:
    rows = (("100x1", "300"), ("10x10", "120"), ("1x100", "102"))
    throughput = Table("Throughput, acknowledgement after 0 ms", ("workload", "relay µs/event"), rows)
    decoding = Table("Decoding a document of 300 bytes", ("decoder", "µs/document"), (("azure.functions", "5"),))

    costs = Costs.of(Report({}, (), (throughput, decoding)))

    found = (costs.single, costs.send, costs.event, costs.document)
    assert found == pytest.approx((300e-6, 200e-6, 100e-6, 5e-6))


def test_limits_come_lowest_first() -> None:
    rates = [limit.rate for limit in limits(Case(), COSTS)]

    assert rates == sorted(rates)


def test_on_standard_an_event_takes_a_credit_to_send_and_two_per_subscription() -> None:
    assert service_bus_limit(Case()).rate == pytest.approx(1000 / 3)
    assert service_bus_limit(Case(subscriptions=2)).rate == pytest.approx(200)


def test_messaging_units_carry_each_message_in_and_out() -> None:
    assert service_bus_limit(Case(size=940, units=2)).rate == pytest.approx(2 * 4_000_000 / 2000)


def test_request_units_are_those_of_the_next_larger_documented_size() -> None:
    assert request_units(Case(others=0)) == pytest.approx(4.95 + 1.0)
    assert request_units(Case(size=1500, others=2)) == pytest.approx(3 * (6.29 + 1.04))


def test_the_processor_is_shared_with_the_functions_host() -> None:
    half, whole = (relay_limits(Case(core=core), COSTS) for core in (0.5, 1.0))

    assert rate(whole, "processor") == pytest.approx(1 / 310e-6)
    assert rate(half, "processor") == pytest.approx(rate(whole, "processor") / 2)


def test_events_of_one_key_share_a_send() -> None:
    found = relay_limits(Case(per_key=10, others=0, core=1.0), COSTS)

    assert rate(found, "processor") == pytest.approx(10 / (200e-6 + 10 * 105e-6))
    assert rate(found, "senders' round trips") == pytest.approx(32 * 10 / (0.010 + 200e-6 + 1000e-6))


def test_more_events_than_a_batch_holds_take_several_sends() -> None:
    found = relay_limits(Case(per_key=100, size=20_000, core=1.0), COSTS)

    # 13 events of 20 060 bytes fit into 256 KiB.
    assert rate(found, "senders' round trips") == pytest.approx(32 * 100 / (8 * 0.0102 + 0.010))


def test_a_partitions_pages_follow_one_another() -> None:
    found = relay_limits(Case(core=1.0), COSTS)

    # 500 keys on 32 senders are 16 rounds.
    assert rate(found, "one page at a time per physical partition") == pytest.approx(
        4 * 500 / (0.020 + 16 * 0.0103)
    )


def test_more_instances_than_physical_partitions_add_nothing() -> None:
    assert relay_limits(Case(instances=8), COSTS) == relay_limits(Case(instances=4), COSTS)


@pytest.mark.parametrize("wanted", capacity_page.RATES)
def test_a_plan_keeps_its_headroom_with_no_instance_too_many(wanted: float) -> None:
    chosen = plan(wanted, COSTS)

    assert limits(chosen, COSTS)[0].rate >= wanted / capacity.HEADROOM
    assert chosen.partitions * 50e9 >= wanted * chosen.size * 864_000
    if chosen.instances > 1:
        fewer = replace(chosen, instances=chosen.instances - 1)
        assert limits(fewer, COSTS)[0].rate < wanted / capacity.HEADROOM


def test_a_plan_leaves_standard_when_its_credits_are_too_few() -> None:
    assert plan(200, COSTS).units == 0
    assert plan(300, COSTS).units == 1


def test_a_rate_beyond_sixteen_messaging_units_has_no_plan() -> None:
    with pytest.raises(ValueError, match=r"no deployment relays 100000 events/s: 16 messaging unit"):
        plan(100_000, COSTS)


def test_the_bounds_are_compared_with_the_measured_senders() -> None:
    rows = (("1", "80", "-"), ("32", "2,000", "-"))
    sweep = Table("RELAY_SENDERS, acknowledgement after 10 ms", ("RELAY_SENDERS", "sends/s", "own core"), rows)
    costs = tuple(table for table in published().tables if not table.title.startswith("RELAY_SENDERS"))

    compared = capacity_page.TABLES["compared"](Report({}, (), (*costs, sweep)))

    one, many = compared.rows
    assert (one[:2], one[3:5]) == (("10", "1"), ("senders' round trips", "80"))
    # 100 keys on 32 senders are 4 rounds of a little more than 10 ms.
    assert many[3:5] == ("one page at a time per physical partition", "2,000")
    assert 2300 < float(many[2].replace(",", "")) < 2500
