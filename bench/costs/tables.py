"""The tables of docs/capacity.md, between their markers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from bench.costs.model import (
    LEASE_CONTAINER_RU,
    SHARE,
    Load,
    Plan,
    cosmos,
    drain_rate,
    enough_delay_ms,
    functions,
    instances,
    lease_ru,
    limits,
    maximum_ru,
    month,
    partitions,
    servicebus,
    units,
    watching,
)
from bench.costs.prices import SECONDS, Prices

TRIAL = Plan(premium=False, autoscale=False)
PRODUCTION = Plan(premium=True, autoscale=True, always_ready=2, private=True)
RATES = (1, 10, 100, 1_000, 20_000)
EXAMPLES = ((10, TRIAL), (1_000, PRODUCTION), (20_000, PRODUCTION))
BACKLOG = 100e6
# The parameters of infra/main.production.bicepparam.
IDLE = (TRIAL, Plan(premium=True, autoscale=True, always_ready=2, private=True, least_ru=10_000))

_MARKED = re.compile(r"(<!-- costs: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(page: str, prices: Prices) -> str:
    """Return the page with every table between its markers written again."""
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]](prices)}\n{found[3]}", page)


def per_million(prices: Prices, rates: Iterable[float] = RATES, streams: int = 1) -> str:
    """Return the dollars for a million events, by service and rate."""
    rows = [_per_million(Load(rate, streams=streams), prices) for rate in rates]
    heads = ("events/s", "Standard", "Premium", "serverless", "autoscale", "Functions", "logs and alerts")
    return _table(heads, rows)


def _per_million(load: Load, prices: Prices) -> tuple[str, ...]:
    millions = load.rate * SECONDS / 1e6
    too_much = load.rate > limits(load, TRIAL)["credits of Standard"] * SHARE
    return (
        f"{load.rate:,.0f}",
        "-" if too_much else _money(servicebus(load, TRIAL, prices) / millions),
        *(
            _money(cost / millions)
            for cost in (
                servicebus(load, PRODUCTION, prices),
                cosmos(load, TRIAL, prices),
                cosmos(load, PRODUCTION, prices),
                functions(load, TRIAL, prices),
                watching(load, TRIAL, prices),
            )
        ),
    )


def examples(prices: Prices, streams: int = 1) -> str:
    """Describe three loads: what they need, what they cost, what breaks first, how long a backlog takes."""
    shown = [_example(Load(rate, streams=streams), plan, prices) for rate, plan in EXAMPLES]
    heads = ("", *(f"{rate:,} events/s" for rate, _ in EXAMPLES))
    return _table(heads, [(name, *(each[name] for each in shown)) for name in shown[0]])


def _example(load: Load, plan: Plan, prices: Prices) -> dict[str, str]:
    total, reached = sum(month(load, plan, prices).values()), limits(load, plan)
    first = min(reached, key=lambda name: reached[name])
    lease, seconds = lease_ru(load, plan), BACKLOG / drain_rate(load, plan)
    delay = f": relayPollDelayMs = {enough_delay_ms(load, plan)}" if lease > LEASE_CONTAINER_RU else ""
    return {
        "Service Bus": f"Premium, units: {units(load)}" if plan.premium else "Standard",
        "Cosmos DB": f"autoscale to {maximum_ru(load, plan):,.0f} RU/s" if plan.autoscale else "serverless",
        "physical partitions": f"{partitions(load, plan)}",
        "instances": f"{instances(load, plan)}",
        "RU/s of the lease container": f"{lease:,.0f}{delay}",
        "dollars a month": _money(total),
        "dollars for a million events": _money(total / (load.rate * SECONDS / 1e6)),
        "breaks first, if nothing is raised": f"{first}, at {_rounded(reached[first])} events/s",
        "100 million waiting events take": _duration(seconds),
    }


def idle(prices: Prices, streams: int = 1) -> str:
    """Return the table of a month without events, by service."""
    columns = [dict(month(Load(0, streams=streams), plan, prices)) for plan in IDLE]
    names = [*columns[1], "in all"]
    values = [{**each, "in all": sum(each.values())} for each in columns]
    rows = [(name, *(_money(each[name]) if name in each else "-" for each in values)) for name in names]
    return _table(("dollars a month", "trial", "production"), rows)


TABLES: Mapping[str, Callable[[Prices], str]] = {
    "per million": per_million,
    "examples": examples,
    "idle": idle,
}


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    rule = ("---", *("--:" for _ in heads[1:]))
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def _money(dollars: float) -> str:
    return f"{dollars:,.2f}" if dollars < 100 else f"{dollars:,.0f}"


def _rounded(rate: float) -> str:
    return f"{float(f'{rate:.3g}'):,.0f}"


def _duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
