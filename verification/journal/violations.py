"""The faults that a journal can show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

_SHOWN = 10


@dataclass(slots=True)
class Violations:
    """Those that were found.

    Attributes:
        counts: The number of violations of each kind.
        findings: The first of them, each with the lines of the journal that show it.
    """

    counts: Counter[StrEnum] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, kind: StrEnum, text: str) -> None:
        """Count a violation; the first ones are described."""
        self.counts[kind] += 1
        if len(self.findings) < _SHOWN:
            self.findings.append(f"{kind}: {text}")
