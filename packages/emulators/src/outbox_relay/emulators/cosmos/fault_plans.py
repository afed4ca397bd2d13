"""A fault as it is asked for: what becomes of which requests, how often and for how long.

{"kind": "throttle", "match": {"container": "data", "operation": "batch"}, "count": 3, "retry_after_ms": 50}
{"kind": "silent", "match": {"container": "leases"}, "for_ms": 10000}
{"kind": "timeout", "match": {"operation": "replace"}, "for_ms": 2000, "hang_ms": 500, "applies": true}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox_relay.emulators.cosmos.fault_targets import EVERYTHING, Match
from outbox_relay.emulators.faults import InvalidFault
from outbox_relay.emulators.properties import MAX_INTEGER, Problems, Reader

DEFAULT_RETRY_AFTER_MS = 100


class FaultKind(StrEnum):
    """The fate of the request."""

    THROTTLE = "throttle"
    """429, not applied."""
    UNAVAILABLE = "unavailable"
    """503, not applied."""
    GONE = "gone"
    """410/1002, not applied: as while a physical partition splits."""
    TIMEOUT = "timeout"
    """408; applied or not, which a client cannot know."""
    DROP = "drop"
    """The connection is closed without an answer, the request is not applied."""
    DROP_AFTER = "drop-after"
    """The request is applied, then the connection closed without an answer."""
    SILENT = "silent"
    """The request is accepted and never answered, not even after the fault; applied or not."""
    SILENT_MIDWAY = "silent-midway"
    """The request is applied, the headers and half of the body are sent; the connection stays open."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A fault as it is asked for: at least one of `count` and `for_ms` is set.

    `retry_after_ms` goes with a throttle. `hang_ms` (the answer's delay) goes with a timeout, and `applies`
    (whether the request is carried out all the same) with a timeout and with silence.
    """

    kind: FaultKind
    match: Match = EVERYTHING
    count: int | None = None
    for_ms: int | None = None
    retry_after_ms: int = DEFAULT_RETRY_AFTER_MS
    hang_ms: int = 0
    applies: bool = False

    @classmethod
    def from_json(cls, body: object) -> FaultPlan:
        """Read the body of `POST /admin/faults`. Raises InvalidFault."""
        problems: Problems = []
        reader = Reader(body, "", problems)
        kind = reader.choice("kind", FaultKind, None)
        if kind is None:
            raise InvalidFault("; ".join(problems))
        match = Match.read(reader.child("match"))
        count, for_ms = reader.limit("count"), reader.limit("for_ms")
        options = {name: read(reader) for name, read in _OPTIONS.get(kind, {}).items()}
        reader.done()
        if count is None and for_ms is None:
            problems.append("count or for_ms is missing: a fault must end")
        if problems:
            raise InvalidFault("; ".join(problems))
        return cls(kind, match, count, for_ms, **options)

    def as_json(self) -> Mapping[str, Any]:
        """Return what was asked for, defaults included."""
        options = {name: getattr(self, name) for name in _OPTIONS.get(self.kind, {})}
        known = {"kind": self.kind, "match": self.match.as_json(), "count": self.count, "for_ms": self.for_ms}
        return known | options


_OPTIONS: Mapping[FaultKind, Mapping[str, Callable[[Reader], Any]]] = {
    FaultKind.THROTTLE: {
        "retry_after_ms": lambda reader: reader.integer("retry_after_ms", DEFAULT_RETRY_AFTER_MS, 0, MAX_INTEGER)
    },
    FaultKind.TIMEOUT: {
        "hang_ms": lambda reader: reader.integer("hang_ms", 0, 0, MAX_INTEGER),
        "applies": lambda reader: reader.boolean("applies"),
    },
    FaultKind.SILENT: {"applies": lambda reader: reader.boolean("applies")},
}
