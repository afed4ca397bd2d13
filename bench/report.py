"""The results of a run: as JSON, and as the page `docs/benchmarks.md`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine
from bench.benchmark import Bound, Findings, Table, Target, shown
from bench.contention import TOO_BUSY, Usage

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
        """The report of a run that ends now."""
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
        """A report as `to_json` wrote it."""
        content = json.loads(text)
        targets = [
            Target(
                each["name"],
                tuple(each["values"]),
                each["unit"],
                Bound(each["bound"]),
                each["limit"],
                each["note"],
            )
            for each in content["targets"]
        ]
        tables = [
            Table(each["title"], tuple(each["columns"]), tuple(map(tuple, each["rows"])), each["prose"])
            for each in content["tables"]
        ]
        return cls(content["run"], tuple(targets), tuple(tables))

    def to_json(self) -> str:
        """The whole report, one line for each target and each row."""
        targets = [_json(asdict(target)) for target in self.targets]
        tables = [
            f'{{"title": {_json(table.title)}, "prose": {_json(table.prose)},\n  '
            f'"columns": {_json(table.columns)},\n  "rows": {_lines(map(_json, table.rows), 3)}}}'
            for table in self.tables
        ]
        return (
            f'{{"run": {_json(self.run)},\n "targets": {_lines(targets, 2)},\n "tables": {_lines(tables, 2)}}}\n'
        )

    def to_markdown(self, *, chart: str) -> str:
        """`docs/benchmarks.md`, made from its template. `chart` is the SVG's path, relative to the page."""
        kind = "Full" if self.run["full"] else "Quick"
        facts = machine.described(self.run["machine"])
        when = f"{datetime.fromisoformat(self.run['finished']):%d %B %Y}, {self.run['seconds'] / 60:.0f} minutes"
        text = TEMPLATE.read_text(encoding="utf-8")
        for name, content in {
            "run": f"{kind} run of {when}: {facts}. {self.busy}",
            "chart": f"![Throughput of the relay and its baselines]({chart})",
            "targets": markdown(targets_table(self.targets)),
            "tables": "\n\n".join(_section(table) for table in self.tables),
        }.items():
            text = text.replace("{{" + name + "}}", content)
        return text

    @property
    def busy(self) -> str:
        """How much of the machine other processes used."""
        share = self.run["used_by_others"]
        said = f"Other processes used {share * 100:.0f} % of the machine"
        return f"{said}: measure again on a quiet machine." if share > TOO_BUSY else f"{said}."

    def regressions(self, published: Report) -> list[Target]:
        """Targets that are missed here, but were not missed in a published report."""
        missed_before = {target.name for target in published.targets if not target.met}
        return [target for target in self.targets if not target.met and target.name not in missed_before]


def targets_table(targets: Iterable[Target]) -> Table:
    """What was measured beside its target."""
    rows = [
        (
            target.name + (f" ({target.note})" if target.note else ""),
            target.wanted,
            f"{shown(target.measured)} {target.unit}",
            " to ".join(shown(value) for value in target.spread),
            "yes" if target.met else "**no**",
        )
        for target in targets
    ]
    return Table("Targets", ("what", "target", "measured, median", "quartiles", "met"), tuple(rows))


def markdown(table: Table) -> str:
    """The table as markdown, numbers to the right."""
    rule = tuple("---" if number == 0 else "--:" for number in range(len(table.columns)))
    return "\n".join("| " + " | ".join(row) + " |" for row in (table.columns, rule, *table.rows))


def _rounded(target: Target) -> Target:
    return replace(target, values=tuple(float(f"{value:.4g}") for value in target.values))


def _section(table: Table) -> str:
    return "\n\n".join(part for part in (f"### {table.title}", table.prose, markdown(table)) if part)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(items: Iterable[str], indent: int) -> str:
    margin = "\n" + " " * indent
    return f"[{margin}{f',{margin}'.join(items)}]"
