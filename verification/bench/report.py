"""The results of a run: as JSON, and as the page `docs/benchmarks.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from verification.bench import machine
from verification.bench.benchmark import Bound, Findings, Table, Target, shown
from verification.bench.machine import TOO_BUSY, Usage

HEADLINES = 4
"""The most targets in the small table."""
_HEADLINES = re.compile(r"(<!-- headlines -->).*?(<!-- end -->)", re.DOTALL)

TEMPLATE = Path(__file__).with_name("benchmarks.template.md")


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one run, as they are stored and shown.

    Attributes:
        run: When, how long, how much, and on what machine.
        targets, tables: Of all benchmarks, in the order in which they ran.
    """

    run: Mapping[str, Any]
    targets: tuple[Target, ...]
    tables: tuple[Table, ...]

    @classmethod
    def of(cls, findings: Iterable[Findings], *, full: bool, seed: int, since: Usage) -> Report:
        """Return the report of a run that ends now."""
        now, found = Usage.now(), list(findings)
        run = {
            "full": full,
            "seed": seed,
            "seconds": round(now.moment - since.moment),
            "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": machine.facts(),
            "used_by_others": round(now.others_share(since), 3),
        }
        return cls(
            run,
            tuple(_rounded(target) for each in found for target in each.targets),
            tuple(table for each in found for table in each.tables),
        )

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read a report as `to_json` wrote it."""
        content = json.loads(text)
        targets = [
            Target(
                each["name"],
                tuple(each["values"]),
                each["unit"],
                Bound(each["bound"]),
                each["limit"],
                each["note"],
                each["headline"],
            )
            for each in content["targets"]
        ]
        tables = [
            Table(each["title"], tuple(each["columns"]), tuple(map(tuple, each["rows"])), each["prose"])
            for each in content["tables"]
        ]
        return cls(content["run"], tuple(targets), tuple(tables))

    def to_json(self) -> str:
        """Return the whole report, one line for each target and row."""
        targets = [_json(asdict(target) | _judged(target)) for target in self.targets]
        tables = [
            f'{{"title": {_json(table.title)}, "prose": {_json(table.prose)},\n  '
            f'"columns": {_json(table.columns)},\n  "rows": {_lines(map(_json, table.rows), 3)}}}'
            for table in self.tables
        ]
        listed = f'"targets": {_lines(targets, 2)},\n "tables": {_lines(tables, 2)}'
        return f'{{"run": {_json(self.run)},\n {listed}}}\n'

    def to_markdown(self) -> str:
        """Return `docs/benchmarks.md`, made from its template."""
        kind = "Full" if self.run["full"] else "Quick"
        text = TEMPLATE.read_text(encoding="utf-8")
        for name, content in {
            "run": f"{kind} run of {self.date}: {self.machine}, "
            f"{machine.packages(self.run['machine'])}. {self.busy}",
            "targets": markdown(targets_table(self.targets)),
            "tables": "\n\n".join(_section(table) for table in self.tables),
        }.items():
            text = text.replace("{{" + name + "}}", content)
        return text

    def headlined(self, page: str) -> str:
        """Return the page with the headlines between its markers written again."""
        written = markdown(headlines_table(self.targets))
        return _HEADLINES.sub(lambda found: f"{found[1]}\n{written}\n{found[2]}", page)

    @property
    def busy(self) -> str:
        """How much of the machine other processes used."""
        share = self.run["used_by_others"]
        said = f"Other processes used {share * 100:.0f} % of the machine"
        return f"{said}: measure again on a quiet machine." if share > TOO_BUSY else f"{said}."

    @property
    def date(self) -> str:
        """The day on which the run ended."""
        return f"{datetime.fromisoformat(self.run['finished']):%d %B %Y}".lstrip("0")

    @property
    def machine(self) -> str:
        """The machine in a line."""
        return machine.described(self.run["machine"])


def targets_table(targets: Iterable[Target]) -> Table:
    """Return the table of each measurement next to its target."""
    rows = [
        (
            target.name + (f" ({target.note})" if target.note else ""),
            target.wanted,
            _measured(target),
            _interval(target),
            _verdict(target),
        )
        for target in targets
    ]
    return Table("Targets", ("what", "target", "median", "95 % interval", "met"), tuple(rows))


def headlines_table(targets: Iterable[Target]) -> Table:
    """Return the table of the README's headlines."""
    chosen = [target for target in targets if target.headline][:HEADLINES]
    rows = [(each.name, _measured(each) + ("" if each.met else f", **misses {each.wanted}**")) for each in chosen]
    return Table("Headlines", ("what", "measured"), tuple(rows))


def compared_table(targets: Iterable[Target], published: Iterable[Target]) -> Table:
    """Return the table of both medians of the targets that both runs have.

    It says whether their intervals leave doubt which is better.
    """
    before = {target.name: target for target in published}
    rows = [
        (target.name, _measured(before[target.name]), _measured(target), _change(before[target.name], target))
        for target in targets
        if target.name in before
    ]
    return Table("Against the published results", ("what", "published", "now", "change"), tuple(rows))


def _change(before: Target, now: Target) -> str:
    (was_low, was_high), (low, high) = before.interval, now.interval
    if low <= was_high and was_low <= high:
        return "none that is certain"
    return "better" if (low > was_high) == (now.bound is Bound.AT_LEAST) else "**worse**"


def _measured(target: Target) -> str:
    return f"{_number(target.measured, target)} {target.unit}".rstrip()


def _interval(target: Target) -> str:
    low, high = (_number(value, target) for value in target.interval)
    return low if low == high else f"{low} to {high}"


def _number(value: float, target: Target) -> str:
    """Format a count, which has no unit; without decimals if it is whole."""
    return f"{value:g}" if not target.unit and value.is_integer() else shown(value)


def _verdict(target: Target) -> str:
    return ("yes" if target.met else "**no**") + ("" if target.certain else ", not certain")


def _judged(target: Target) -> dict[str, Any]:
    return {"median": target.measured, "interval": target.interval, "met": target.met}


def markdown(table: Table) -> str:
    """Return the table as markdown, numbers to the right."""
    rule = "|".join("---" if number == 0 else "--:" for number in range(len(table.columns)))
    columns, *rows = ("| " + " | ".join(row) + " |" for row in (table.columns, *table.rows))
    return "\n".join((columns, f"|{rule}|", *rows))


def _rounded(target: Target) -> Target:
    return replace(target, values=tuple(float(f"{value:.4g}") for value in target.values))


def _section(table: Table) -> str:
    return "\n\n".join(part for part in (f"### {table.title}", table.prose, markdown(table)) if part)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(items: Iterable[str], indent: int) -> str:
    margin = "\n" + " " * indent
    return f"[{margin}{f',{margin}'.join(items)}]"
