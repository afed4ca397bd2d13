"""The dollars of docs/capacity.md follow from their inputs, and the command takes a reader's own."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from bench.costs import tables
from bench.costs.__main__ import PAGE, main
from bench.costs.model import (
    LEASE_CONTAINER_RU,
    LOG_RULES,
    METRIC_RULES,
    PAGE_RU,
    PARTITION_BYTES,
    PARTITION_RU,
    Load,
    cosmos,
    drain_rate,
    enough_delay_ms,
    lease_ru,
    limits,
    partitions,
    servicebus,
    units,
)
from bench.costs.prices import Prices
from bench.costs.tables import IDLE, PRODUCTION, TRIAL
from tests.support.pages import ROOT

SECONDS = 730 * 3600
PRICES = Prices()


def of_a_million(dollars: float, rate: float) -> float:
    return round(dollars / (rate * SECONDS / 1e6), 2)


def test_the_page_has_the_tables_of_these_prices() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert re.findall(r"<!-- costs: ([a-z ]+) -->", page) == list(tables.TABLES)
    # After a change: python -m bench.costs --write
    assert tables.rendered(page, PRICES) == page


def test_operations_of_standard_are_billed_by_tier() -> None:
    operations = 10 * SECONDS * 2 / 1e6

    cost = servicebus(Load(10), TRIAL, PRICES)

    assert cost == pytest.approx(10.0 + (operations - 13) * 0.80)
    assert of_a_million(cost, 10) == 1.58
    # 64 KB an operation.
    assert servicebus(Load(10, event_bytes=100_000), TRIAL, PRICES) == pytest.approx(
        10.0 + 87 * 0.80 + (2 * operations - 100) * 0.50
    )


@pytest.mark.parametrize(("rate", "needed", "dollars"), [(1_000, 1, 0.26), (20_000, 8, 0.10)])
def test_premium_is_billed_by_messaging_units(rate: int, needed: int, dollars: float) -> None:
    assert units(Load(rate)) == needed
    assert of_a_million(servicebus(Load(rate), PRODUCTION, PRICES), rate) == dollars


def test_request_units_are_billed_each_or_by_the_throughput_that_has_them() -> None:
    ru = 2 * (4.95 + 1)

    polls_and_leases = 2 * 1 + 2 * 11 + 11 / 17
    stored = 10 * 500 * 864_000 / 1e9 * 0.25
    assert cosmos(Load(10), TRIAL, PRICES) == pytest.approx(
        (10 * ru + polls_and_leases) * SECONDS / 1e6 * 0.25 + stored
    )
    # At 100 /s polls and leases are little: 11.9 RU at 1.2 cents for 360 000 of them.
    events_alone = 1e6 * ru / (100 * 3600) * 0.012
    assert of_a_million(cosmos(Load(100), PRODUCTION, PRICES), 100) == pytest.approx(events_alone, abs=0.15)


def test_serverless_is_cheaper_only_at_the_rates_that_the_page_says() -> None:
    assert "serverless is cheaper below about 2 events a second" in " ".join(PAGE.read_text("utf-8").split())
    for rate, cheaper, dearer in ((1.5, TRIAL, PRODUCTION), (2.5, PRODUCTION, TRIAL)):
        assert cosmos(Load(rate), cheaper, PRICES) < cosmos(Load(rate), dearer, PRICES)


def test_the_lease_container_has_room_with_the_pause_that_is_named() -> None:
    load = Load(20_000)

    assert partitions(load, PRODUCTION) == 173
    assert lease_ru(load, PRODUCTION) > LEASE_CONTAINER_RU
    assert enough_delay_ms(load, PRODUCTION) == 2500
    assert enough_delay_ms(Load(10), TRIAL) == 500
    assert round(LEASE_CONTAINER_RU / PAGE_RU) == 91


def test_each_stream_reads_sends_and_keeps_what_it_needs_by_itself() -> None:
    one, two = Load(1_000), Load(1_000, streams=2)

    assert two.read_ru - one.read_ru == 2
    assert lease_ru(two, PRODUCTION) == pytest.approx(2 * lease_ru(one, PRODUCTION))
    # Without events, polls are within what autoscale bills at least: only a quarantine is added.
    idle_one, idle_two = (cosmos(Load(0, streams=each), PRODUCTION, PRICES) for each in (1, 2))
    assert idle_two - idle_one == pytest.approx(PRICES.autoscale_100 * 730)
    assert servicebus(Load(5, streams=2), TRIAL, PRICES) == servicebus(Load(10), TRIAL, PRICES)
    assert (units(Load(2_000, streams=2)), units(Load(4_000))) == (2, 2)
    reached, alone = limits(two, PRODUCTION), limits(one, PRODUCTION)
    assert reached["messaging units"] == alone["messaging units"] / 2
    assert reached["instances"] == alone["instances"] / 2


def test_a_backlog_drains_by_what_the_smallest_limit_leaves() -> None:
    assert drain_rate(Load(10), TRIAL) == pytest.approx(1000 / 3 - 10)
    # 17 000 RU/s less those of 1 000 writes, for two reads an event.
    assert drain_rate(Load(1_000), PRODUCTION) == pytest.approx((17_000 - 9_900) / 2 - 1_000)


def test_the_idle_month_has_the_parameters_of_production() -> None:
    file = (ROOT / "infra/main.production.bicepparam").read_text(encoding="utf-8")

    for name, value in (("cosmosMaxThroughput", IDLE[1].least_ru), ("alwaysReadyInstances", IDLE[1].always_ready)):
        assert f"param {name} = {value}\n" in file


def test_as_many_alert_rules_are_paid_as_are_deployed() -> None:
    # After a change: LOG_RULES or METRIC_RULES, then python -m bench.costs --write
    modules = [ROOT / f"infra/modules/{name}.bicep" for name in ("relay-alerts", "alerts")]
    text = "".join(path.read_text(encoding="utf-8") for path in modules)
    rules = re.findall(r"^  \{\n    name: '([\w-]+)'\n(.*?)^  \}", text, re.MULTILINE | re.DOTALL)
    on_logs = [name for name, body in rules if "query: " in body]

    assert (len(on_logs), len(rules) - len(on_logs)) == (LOG_RULES, METRIC_RULES)
    for page, sentence in (
        ("runbook", "nine rules on queries, six rules on the services' own metrics"),
        ("deployment", "eight log rules every 5 minutes, one every 15; six metric rules"),
    ):
        assert sentence in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")


def test_the_command_takes_prices_and_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rate", "1000", "--price", "premium_unit=67.7"]) == 0

    assert "| 1,000 | - | 0.03 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--price", "premium=1"], "'premium' is no price"),
        (["--price", "premium_unit=much"], "write premium_unit=DOLLARS"),
        (["--rate", "0"], "must be above 0"),
    ],
)
def test_what_the_command_cannot_use_is_named(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)

    assert says in capsys.readouterr().err


def test_every_price_is_explained() -> None:
    explained = set(re.findall(r"^ {8}(\w+): ", Prices.__doc__ or "", re.MULTILINE))

    assert explained == {each.name for each in fields(Prices)}


def test_the_quotas_of_the_page_follow_from_the_same_quantities() -> None:
    page, load = " ".join(PAGE.read_text("utf-8").split()), Load(1)
    standard, two = (limits(each, TRIAL)["credits of Standard"] for each in (load, Load(1, subscriptions=2)))
    by_ru = PARTITION_RU["autoscale"] / (load.written_ru + load.read_ru)
    by_storage = PARTITION_BYTES / load.stored_bytes

    for quota in (
        f"{standard:.0f} events/s; {two:.0f} with two subscriptions",
        f"{round(limits(load, PRODUCTION)['messaging units'], -1):,.0f} events/s and unit".replace(",", " "),
        f"{by_ru:.0f} events/s and physical partition",
        f"{int(by_storage)} events/s and physical partition",
        f"**Request units**: {load.written_ru + load.read_ru:.1f} for such an event",
        f"{Load(100).stored_bytes / 1e9:.0f} GB in ten days",
    ):
        assert quota in page, quota
