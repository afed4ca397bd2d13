"""The report of `check`: findings, each with a level and, if something is to be done, a remedy."""

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
        what: The setting, the resource it names, and the finding; a `Sentence` if it has commands.
        remedy: The action to take, a `Sentence` if it has commands; None if there is none.
        unavailable: A service could not be reached, or refused the credentials.
    """

    level: Level
    what: str
    remedy: str | None = None
    unavailable: bool = False

    @classmethod
    def ok(cls, what: str) -> Finding:
        """Return a finding that everything is as it should be."""
        return cls(Level.OK, what)

    @classmethod
    def warning(cls, what: str, remedy: str) -> Finding:
        """Return a finding that something works, with a risk."""
        return cls(Level.WARNING, what, remedy)

    @classmethod
    def unknown(cls, what: str, remedy: str) -> Finding:
        """Return a finding that something cannot be read with these rights."""
        return cls(Level.UNKNOWN, what, remedy)

    @classmethod
    def error(cls, what: str, remedy: str, *, unavailable: bool = False) -> Finding:
        """Return a finding that something must be fixed."""
        return cls(Level.ERROR, what, remedy, unavailable)


class Why(StrEnum):
    """Why a fact could not be read."""

    MISSING = "missing"  # the service reports that it does not exist, or is disabled
    OTHER_KIND = "other kind"  # there is a queue of that name instead of a topic, or the reverse
    FORBIDDEN = "forbidden"  # it may exist, but these rights are not enough to see it
    REFUSED = "refused"  # the credentials were not accepted
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact that could not be read.

    Attributes:
        why: The kind of failure.
        said: The message of the service or the SDK.
    """

    why: Why
    said: str
