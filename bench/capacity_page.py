"""The tables of docs/capacity.md, rendered from the capacity model and the published benchmarks.

`python -m bench.capacity_page` renders them between the page's markers; a test fails when they differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from bench.benchmark import Table, percent
from bench.capacity import STORED_S, Case, Costs, limits, plan, relay_limits, request_units
from bench.report import Report, markdown
from local.stack.parts import ROOT

PAGE = ROOT / "docs" / "capacity.md"
RATES = (10.0, 100.0, 300.0, 1000.0, 5000.0, 1_000_000 / 60)

_MARKED = re.compile(r"(<!-- table: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _costs(report: Report) -> Table:
    costs = Costs.of(report)
    rows = {
        "an event that is its key's only one in a page: checked, encoded, sent as one message": costs.single,
        "a batch, whatever its size": costs.send,
        "an event in a batch: checked, encoded, added to the batch": costs.event,
        "a document of any type: decoded from the trigger's text": costs.document,
    }
    return Table("", ("step", "µs"), tuple((step, f"{seconds * 1e6:.3g}") for step, seconds in rows.items()))


def _compared(report: Report) -> Table:
    """The bounds beside the benchmark's sweep of RELAY_SENDERS: pages of 100 keys with one event each."""
    costs, rows = Costs.of(report), []
    for table in report.tables:
        if not (title := re.fullmatch(r"RELAY_SENDERS, acknowledgement after (\d+) ms", table.title)):
            continue
        column = table.columns.index("sends/s")
        for row in table.rows:
            case = Case(
                others=0,
                partitions=1,
                senders=int(row[0]),
                max_items=100,
                round_trip_s=int(title[1]) / 1000,
                page_s=0,
                core=1,
            )
            bound = min(relay_limits(case, costs), key=lambda limit: limit.rate)
            measured = float(row[column].replace(",", ""))
            rows.append(
                (
                    title[1],
                    row[0],
                    _number(bound.rate),
                    bound.name,
                    _number(measured),
                    percent(measured / bound.rate),
                )
            )
    columns = (
        "round trip, ms",
        "`RELAY_SENDERS`",
        "bound, events/s",
        "from",
        "measured, events/s",
        "of the bound",
    )
    return Table("", columns, tuple(rows))


def _growth(report: Report) -> Table:
    costs, rows = Costs.of(report), []
    for rate in RATES:
        case = plan(rate, costs)
        operations = rate * (1 + case.subscriptions) * 30 * 86_400 / 1e6
        first = limits(case, costs)[0]
        rows.append(
            (
                _number(rate),
                f"Premium, {case.units}" if case.units else f"Standard, {_number(operations)} million operations",
                str(case.instances),
                str(case.partitions),
                _number(case.instances * case.senders),
                _number(rate * request_units(case)),
                _number(rate * case.size * STORED_S / 1e9),
                f"{_number(first.rate)}: {first.name}",
            )
        )
    columns = (
        "events/s",
        "tier and units, or operations a month",
        "instances",
        "physical partitions",
        "connections",
        "RU/s",
        "GB stored",
        "first limit, events/s",
    )
    return Table("", columns, tuple(rows))


def _changes(report: Report) -> Table:
    costs, base = Costs.of(report), Case()
    cases = {
        "(none)": base,
        **{f"round trip {ms} ms": replace(base, round_trip_s=ms / 1000) for ms in (2, 30, 100)},
        **{f"`RELAY_SENDERS` {senders}": replace(base, senders=senders) for senders in (4, 8, 64)},
        **{f"{number} events of a key in a page": replace(base, per_key=number) for number in (10, 100)},
        **{f"{number} documents of other types per event": replace(base, others=number) for number in (0, 19)},
        **{f"{number} physical partition(s)": replace(base, partitions=number) for number in (1, 16)},
        "4 instances": replace(base, instances=4),
    }
    names = [limit.name for limit in relay_limits(base, costs)]
    rows = []
    for change, case in cases.items():
        found = relay_limits(case, costs)
        first = min(found, key=lambda limit: limit.rate)
        rows.append((change, *(_number(limit.rate) for limit in found), first.name))
    return Table("", ("changed", *names, "first limit"), tuple(rows))


def _limits(report: Report) -> Table:
    costs = Costs.of(report)
    found = {limit.name: limit for units in (0, 1) for limit in limits(Case(units=units), costs)}
    rows = sorted(found.values(), key=lambda limit: limit.rate)
    return Table(
        "",
        ("events/s at most", "because of", "what to raise"),
        tuple((_number(limit.rate), limit.name, limit.remedy) for limit in rows),
    )


def _number(value: float) -> str:
    """Three significant digits: more would claim too much."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


TABLES: dict[str, Callable[[Report], Table]] = {
    "costs": _costs,
    "compared": _compared,
    "growth": _growth,
    "changes": _changes,
    "limits": _limits,
}


def rendered(text: str, report: Report) -> str:
    """The page with every table between its markers computed again. KeyError for an unknown table."""
    return _MARKED.sub(lambda found: f"{found[1]}{markdown(TABLES[found[2]](report))}\n{found[3]}", text)


def write(report: Report) -> None:
    """Render docs/capacity.md from a report's costs."""
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    write(Report.from_json((ROOT / "bench" / "results" / "latest.json").read_text(encoding="utf-8")))
