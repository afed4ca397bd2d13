"""The tables of docs/capacity.md, rendered from the model between markers, so that they cannot drift from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.capacity_model import Ceiling, Demand, Deployment, Forecast, ceilings, forecast, names, plan
from bench.capacity_rates import INSTANCE_MEMORY_GB, MEASURED, OPERATION_BYTES, PARTITION_BYTES, Tier

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "capacity.md"
MILLION_A_MINUTE = Demand(rate=1_000_000 / 60)

_MARKED = re.compile(r"(<!-- model: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_BASE = Deployment(tier=Tier.STANDARD)
_DEMAND = Demand(rate=100)
_MONTH_S = 30 * 86_400

Row = tuple[str, ...]


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]


def rendered(text: str) -> str:
    """The document with every table between markers as the model has it now. KeyError for an unknown table."""

    def table(found: re.Match[str]) -> str:
        columns, rows = TABLES[found[2]]()
        return found[1] + "\n".join(markdown(columns, rows)) + "\n" + found[3]

    return _MARKED.sub(table, text)


def write() -> None:
    """Render docs/capacity.md anew."""
    DOCUMENT.write_text(rendered(DOCUMENT.read_text()))


def _costs() -> tuple[Row, list[Row]]:
    meanings = {
        "single": "an event that is its key's only one in a page: checked, encoded, sent as a message, remembered",
        "send": "a batch, whatever it carries",
        "event": "an event in a batch: checked, encoded, put into it, remembered",
        "byte": "a byte of an event's document",
        "document": "a document of any type: decoded from the trigger's text",
        "wake": "waking up when there was nothing to do",
    }
    return ("step", "µs"), [
        (meaning, f"{getattr(MEASURED, name) * 1e6:.3g}") for name, meaning in meanings.items()
    ]


def _growth() -> tuple[Row, list[Row]]:
    columns = (
        "events/s",
        "tier, units",
        "instances",
        "physical partitions",
        "connections",
        "RU/s, data",
        "RU/s, leases",
        "p50, ms",
        "p99, ms",
        "first limit, events/s",
    )
    rows: list[Row] = []
    for rate in (10, 100, 300, 1000, 5000, 1_000_000 / 60):
        demand = Demand(rate=rate)
        chosen = plan(demand, _BASE)
        found = forecast(demand, chosen)
        rows.append(
            (
                _number(rate),
                _tier(chosen),
                str(chosen.instances),
                str(chosen.partitions),
                _number(found.connections),
                _number(found.ru_written + found.ru_fed),
                _number(found.ru_leases),
                _milliseconds(found.p50_ms),
                _milliseconds(found.p99_ms),
                _named(found.first),
            )
        )
    return columns, rows


def _changes() -> tuple[Row, list[Row]]:
    demand, base = _DEMAND, replace(_BASE, tier=Tier.PREMIUM, units=16)
    cases: list[tuple[str, Demand, Deployment]] = [
        ("(none)", demand, base),
        *((f"round trip {ms:.0f} ms", demand, replace(base, round_trip_ms=ms)) for ms in (2.0, 30.0, 100.0)),
        *((f"`RELAY_SENDERS` {senders}", demand, replace(base, senders=senders)) for senders in (4, 8, 64)),
        *((f"{each} events of a key in a page", replace(demand, per_key=each), base) for each in (10, 100)),
        *((f"events of {size // 1000} KB", replace(demand, size=size), base) for size in (2_000, 20_000)),
        ("no documents of other types", replace(demand, others=0.0), base),
        ("19 documents of other types an event", replace(demand, others=19.0), base),
        *((f"{each} physical partition(s)", demand, replace(base, partitions=each)) for each in (1, 16)),
        *((f"{each} instances", demand, replace(base, instances=each)) for each in (4, 8)),
    ]
    columns = ("changed", "processor", "round trips", "pages in turn", "all together, events/s", "first limit")
    return columns, [(what, *_relay_limits(ceilings(demand, deployment))) for what, demand, deployment in cases]


def _relay_limits(found: Sequence[Ceiling]) -> Row:
    by_name = {ceiling.name: ceiling.rate for ceiling in found}
    relay = [name for name in names(found) if name in _RELAY and name != _TOGETHER]
    return (*(_number(by_name[name]) for name in _RELAY), relay[0])


_TOGETHER = "instances, all of these together"
_RELAY = ("processor", "senders' round trips", "one page at a time for each physical partition", _TOGETHER)


def _limits(tier: Tier) -> Callable[[], tuple[Row, list[Row]]]:
    def table() -> tuple[Row, list[Row]]:
        found = ceilings(_DEMAND, replace(_BASE, tier=tier))
        rows: list[Row] = [(_number(ceiling.rate), ceiling.name, ceiling.remedy) for ceiling in found]
        return ("events/s at most", "because of", "what to raise"), rows

    return table


def _million() -> tuple[Row, list[Row]]:
    demand = MILLION_A_MINUTE
    chosen = plan(demand, _BASE)
    found = forecast(demand, chosen)
    return ("", "a million events a minute"), [
        ("events a second", _number(demand.rate)),
        ("Service Bus", _tier(chosen)),
        ("physical partitions", f"{chosen.partitions}, {_why_partitions(demand, found)}"),
        ("instances of the function app", str(chosen.instances)),
        ("leases of an instance, at most", str(chosen.leases)),
        ("`RELAY_SENDERS`", str(chosen.senders)),
        ("AMQP connections of the relay", f"{_number(found.connections)} of 5 000"),
        ("RU/s written by the services (events and business documents)", _number(found.ru_written)),
        ("RU/s to read the change feed", _number(found.ru_fed)),
        ("RU/s of the lease container", _number(found.ru_leases)),
        ("stored events, after ten days", f"{found.stored_bytes / 1e12:.1f} TB"),
        ("into Service Bus", f"{_carried(demand) / 1e6:.1f} MB/s"),
        ("latency, p50 and p99", f"{_milliseconds(found.p50_ms)} and {_milliseconds(found.p99_ms)} ms"),
        ("the topic is full, if nobody receives, after", f"{found.topic_hours:.1f} hours"),
        ("first limit", _named(found.first)),
    ]


def _why_partitions(demand: Demand, found: Forecast) -> str:
    by_storage = found.stored_bytes / PARTITION_BYTES
    return f"of which storage alone asks for {by_storage:.0f}" if by_storage >= 1 else "by request units"


def _cost() -> tuple[Row, list[Row]]:
    columns = (
        "events/s",
        "messaging units",
        "Standard operations a month, millions",
        "RU/s",
        "GB stored",
        "instances, GB of memory",
    )
    rows: list[Row] = []
    for rate in (10, 100, 300, 1000, 5000, 1_000_000 / 60):
        demand = Demand(rate=rate)
        chosen = plan(demand, _BASE)
        found = forecast(demand, chosen)
        premium = chosen.tier is Tier.PREMIUM
        operations = rate * (1 + demand.subscriptions) * -(-demand.size // OPERATION_BYTES) * _MONTH_S
        rows.append(
            (
                _number(rate),
                str(chosen.units) if premium else "none",
                "none" if premium else _number(operations / 1e6),
                _number(found.ru_written + found.ru_fed + found.ru_leases),
                _number(found.stored_bytes / 1e9),
                _number(chosen.instances * INSTANCE_MEMORY_GB),
            )
        )
    return columns, rows


def _carried(demand: Demand) -> float:
    return demand.rate * demand.size


def _tier(deployment: Deployment) -> str:
    if deployment.tier is Tier.STANDARD:
        return str(deployment.tier)
    return f"{deployment.tier}, {deployment.units} unit{'s' if deployment.units > 1 else ''}"


def _named(ceiling: Ceiling) -> str:
    return f"{_number(ceiling.rate)}: {ceiling.name}"


def _milliseconds(value: float | None) -> str:
    return "beyond the limit" if value is None else f"{value:.0f}"


def _number(value: float) -> str:
    """To three significant digits, thousands apart: more would claim what a model cannot know."""
    digits = len(str(round(value)))
    rounded = round(value, 3 - digits) if digits > 3 else round(value, 1) if value < 10 else round(value)
    return f"{rounded:,g}".replace(",", " ") if rounded < 10 else f"{round(rounded):,}".replace(",", " ")


TABLES: dict[str, Callable[[], tuple[Row, list[Row]]]] = {
    "costs": _costs,
    "growth": _growth,
    "changes": _changes,
    "standard": _limits(Tier.STANDARD),
    "premium": _limits(Tier.PREMIUM),
    "million": _million,
    "cost": _cost,
}
