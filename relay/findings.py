"""What `check` reports: findings, each with a level and, where something is to be done, a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    UNKNOWN = "unknown"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        level: How serious it is.
        what: The setting, the resource it names, and what was found.
        remedy: What to do; None where there is nothing to do.
        unavailable: A service could not be reached, or refused the credentials.
    """

    level: Level
    what: str
    remedy: str | None = None
    unavailable: bool = False
