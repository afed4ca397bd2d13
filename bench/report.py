"""What a run found, as JSON and as markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine
from bench.benchmark import Figure, Findings, Table, Target
from bench.contention import TOO_BUSY, Usage
from bench.explanations import EXPLANATIONS

TEMPLATE = Path(__file__).with_name("benchmarks.template.md")


@dataclass(frozen=True, slots=True)
class Report:
    """One run.

    Attributes:
        findings: By the benchmark's name, in the order run.
        full: Whether it was the whole.
        seed: What its workloads were drawn from.
        seconds: How long it took.
        others_share: The share of the machine's processors that other processes used meanwhile, 0 to 1.
        finished: When it ended.
    """

    findings: dict[str, Findings]
    full: bool
    seed: int
    seconds: float
    others_share: float
    finished: datetime

    @classmethod
    def of(cls, findings: dict[str, Findings], *, full: bool, seed: int, since: Usage) -> Report:
        """The report of a run that ends now."""
        now = Usage.now()
        return cls(findings, full, seed, now.moment - since.moment, now.others_share(since), datetime.now(UTC))

    @property
    def targets(self) -> list[Target]:
        return [target for each in self.findings.values() for target in each.targets]

    @property
    def figures(self) -> list[Figure]:
        """Every figure once, those that targets judge first."""
        found = {target.figure.name: target.figure for target in self.targets}
        found |= {figure.name: figure for each in self.findings.values() for figure in each.figures}
        return list(found.values())

    @property
    def tables(self) -> list[Table]:
        return [table for each in self.findings.values() for table in each.tables]

    @property
    def unexplained(self) -> list[Target]:
        """Targets that were missed and have no explanation."""
        return [target for target in self.targets if not target.met and explanation(target) is None]

    @property
    def busy(self) -> str:
        """How much of the machine went to others, and what to make of it."""
        said = f"Other processes used {self.others_share:.0%} of the machine meanwhile"
        return f"{said}: measure again on a quiet one." if self.others_share > TOO_BUSY else f"{said}."

    def to_json(self) -> str:
        """The whole report; every number to six digits."""
        content = {
            "full": self.full,
            "seed": self.seed,
            "seconds": round(self.seconds),
            "finished": self.finished.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": machine.facts(),
            "used_by_others": _digits(self.others_share),
            "targets": [_target(each) for each in self.targets],
            "figures": [_figure(each) for each in self.figures],
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def to_markdown(self, *, chart: str) -> str:
        """`docs/benchmarks.md`, made of its template. `chart` is the SVG's path, relative to it."""
        facts = machine.facts()
        run = (
            f"{'Full' if self.full else 'Quick'} run of {self.finished:%d %B %Y}, {self.seconds / 60:.0f} minutes"
        )
        parts = {
            "run": f"{run}, on {', '.join(f'{name} {value}' for name, value in facts.items())}. {self.busy}",
            "chart": f"![The figures as a chart]({chart})",
            "targets": _markdown(_targets_table(self.targets)),
            "missed": _missed(self.targets),
            "tables": "\n\n".join(_section(table) for table in self.tables),
        }
        text = TEMPLATE.read_text()
        for name, content in parts.items():
            text = text.replace("{{" + name + "}}", content)
        return text


def explanation(target: Target) -> str | None:
    """Why this target was missed, where that is known."""
    return EXPLANATIONS.get(target.key or target.name)


def shown(value: float) -> str:
    """A number with as many digits as anyone needs."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _target(target: Target) -> dict[str, Any]:
    found = {
        "name": target.name,
        "target": target.target,
        "measured": _digits(target.measured),
        "met": target.met,
        "unit": target.figure.unit,
        "spread": [_digits(value) for value in target.figure.spread],
        "repeats": len(target.figure.values),
        "figure": target.figure.name,
    }
    if not target.met:
        found["explanation"] = explanation(target)
    return found


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "unit": figure.unit,
        "median": _digits(figure.median),
        "spread": [_digits(value) for value in figure.spread],
        "repeats": len(figure.values),
        "values": [_digits(value) for value in figure.values],
        **({"note": figure.note} if figure.note else {}),
    }


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _targets_table(targets: Sequence[Target]) -> Table:
    rows = [
        (
            target.name,
            target.target,
            f"{shown(target.measured)} {target.figure.unit}",
            " to ".join(shown(value) for value in target.figure.spread),
            "yes" if target.met else "**no**",
        )
        for target in targets
    ]
    return Table("Targets", ("what", "target", "measured, median", "spread", "met"), tuple(rows))


def _missed(targets: Sequence[Target]) -> str:
    missed = [target for target in targets if not target.met]
    if not missed:
        return "Every target was met."
    explained: dict[str, list[str]] = {}
    for target in missed:
        explained.setdefault(explanation(target) or "Not explained yet.", []).append(target.name)
    return "\n\n".join(f"**{'; '.join(names)}.** {text}" for text, names in explained.items())


def _section(table: Table) -> str:
    return "\n\n".join(part for part in (f"### {table.title}", table.prose, _markdown(table)) if part)


def _markdown(table: Table) -> str:
    rule = tuple("---" if number == 0 else "--:" for number in range(len(table.columns)))
    return "\n".join("| " + " | ".join(row) + " |" for row in (table.columns, rule, *table.rows))
