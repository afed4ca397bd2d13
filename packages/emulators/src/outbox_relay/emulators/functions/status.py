"""The counts of a function, for the admin endpoint and for tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt that is under way or awaited, from 2, and why the one before it failed."""

    number: int
    error: str


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why a page of changes could not be parsed, and when, in seconds since 1970: it is tried every 13 s."""

    error: str
    at: float


UNABLE = "the listener was unable to start"
"""The beginning of `last_error` where a function's trigger does not listen."""


@dataclass(slots=True)
class FunctionStatus:
    """Counts since the host started.

    `invocations` counts attempts; `documents_delivered` the documents of attempts that succeeded, `documents_lost`
    those checkpointed although every attempt failed. `leases` are owned. `invoking` are those whose documents the
    function has now, including retries and the waits between them; they may be lost already. `attempts` has those
    of them whose last attempt failed; `withheld` those leases whose next page could not be parsed.
    """

    name: str
    invocations: int = 0
    failures: int = 0
    retries: int = 0
    documents_delivered: int = 0
    documents_lost: int = 0
    last_error: str | None = None
    leases: list[str] = field(default_factory=list)
    invoking: list[str] = field(default_factory=list)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    withheld: dict[str, Withheld] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
