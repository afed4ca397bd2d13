"""A fault as it is asked for: what is to become of which requests, and for how long.

{"kind": "throttle", "match": {"container": "data", "operation": "batch"}, "count": 3, "retry_after_ms": 50}
{"kind": "timeout", "match": {"operation": "replace"}, "for_ms": 2000, "hang_ms": 500, "applies": true}
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox_emulators.cosmos.fault_targets import EVERYTHING, InvalidFault, Match

DEFAULT_RETRY_AFTER_MS = 100


class FaultKind(StrEnum):
    """What becomes of the request."""

    THROTTLE = "throttle"
    """429, not applied."""
    UNAVAILABLE = "unavailable"
    """503, not applied."""
    GONE = "gone"
    """410/1002, not applied: as while a partition splits."""
    TIMEOUT = "timeout"
    """408; applied or not, which a client cannot know."""
    DROP = "drop"
    """The connection is closed without an answer, the request is not applied."""
    DROP_AFTER = "drop-after"
    """The request is applied, then the connection closed without an answer."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A fault as it is asked for: at least one of `count` and `for_ms` is set.

    `retry_after_ms` goes with a throttle. `hang_ms` (the answer's delay) and `applies` (whether the request is
    carried out all the same) go with a timeout.
    """

    kind: FaultKind
    match: Match = EVERYTHING
    count: int | None = None
    for_ms: int | None = None
    retry_after_ms: int = DEFAULT_RETRY_AFTER_MS
    hang_ms: int = 0
    applies: bool = False

    def __post_init__(self) -> None:
        if self.count is None and self.for_ms is None:
            raise InvalidFault("count or for_ms is needed: a fault has to end")

    @classmethod
    def from_json(cls, value: object) -> FaultPlan:
        """The body of `POST /admin/faults`; InvalidFault says what is wrong with it."""
        if not isinstance(value, dict):
            raise InvalidFault("a fault has to be a JSON object")
        kind = FaultKind(_one_of(value.get("kind"), FaultKind, "kind"))
        known = {"kind", "match", "count", "for_ms", *_OPTIONS.get(kind, ())}
        if unknown := sorted(value.keys() - known):
            raise InvalidFault(f"'{unknown[0]}' is no option of {kind}, which knows {', '.join(sorted(known))}")
        return cls(
            kind=kind,
            match=Match.from_json(value.get("match")),
            count=_limit(value, "count"),
            for_ms=_limit(value, "for_ms"),
            retry_after_ms=_number(value, "retry_after_ms", DEFAULT_RETRY_AFTER_MS),
            hang_ms=_number(value, "hang_ms", 0),
            applies=_flag(value, "applies"),
        )


_OPTIONS: dict[FaultKind, tuple[str, ...]] = {
    FaultKind.THROTTLE: ("retry_after_ms",),
    FaultKind.TIMEOUT: ("hang_ms", "applies"),
}


def _one_of(value: object, choices: type[StrEnum], name: str) -> str:
    names = [str(choice) for choice in choices]
    if value not in names:
        raise InvalidFault(f"{name} is {value!r}; it must be one of {', '.join(names)}")
    return str(value)


def _limit(value: dict[str, Any], name: str) -> int | None:
    return None if value.get(name) is None else _number(value, name, 1, least=1)


def _number(value: dict[str, Any], name: str, default: int, *, least: int = 0) -> int:
    number = value.get(name, default)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise InvalidFault(f"{name} is {number!r}; it must be a whole number of at least {least}")
    return number


def _flag(value: dict[str, Any], name: str) -> bool:
    flag = value.get(name, False)
    if not isinstance(flag, bool):
        raise InvalidFault(f"{name} is {flag!r}; it must be true or false")
    return flag
