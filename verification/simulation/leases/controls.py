"""Rules of the fence that have been wrong, and what takes the place of the right one until a block ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from relay.backends.cosmos.leases import LeasePosition, Positions
from verification.journal.checker import Wrong
from verification.simulation.controls import Control

_UNKNOWN = (-1, math.inf)


def _number(lease: LeasePosition) -> int:
    return int(lease.token) if lease.token.isdecimal() else -1


def _distrusts(one: LeasePosition, other: LeasePosition) -> bool:
    """Return True if `other` is of a younger partition than `one`, and covers more keys."""
    return (other.minimum < one.minimum or one.maximum < other.maximum) and _number(one) < _number(other)


def _nearest(leases: Sequence[LeasePosition]) -> tuple[int, float]:
    return min(each.done for each in leases), min(each.reached[1] for each in leases)


def _any_that_is_trusted(self: Positions, bound: str) -> tuple[int, float]:
    """Apply the rule until November 2026.

    One lease is enough, with those whose keys it was seen to have skipped.
    """
    covering = self._covering(bound)
    reached = [_nearest([each, *(one for one in covering if _distrusts(one, each))]) for each in covering]
    return max(reached, default=_UNKNOWN)


def _any(self: Positions, bound: str) -> tuple[int, float]:
    return max((each.reached for each in self._covering(bound)), default=_UNKNOWN)


def _none(self: Positions, bound: str) -> tuple[int, float]:
    return _UNKNOWN


def _judged_by(rule: Any) -> Any:
    return patch.object(Positions, "_reached_from", rule)


CONTROLS = {
    "EveryLeaseCounts": Control(lambda: _judged_by(_any), Wrong.MISSING, 10, first=80),
    "RangesCountToo": Control(lambda: _judged_by(_any_that_is_trusted), Wrong.MISSING, 10, first=590),
    "StopsWhatEveryLeaseHasPassed": Control(lambda: _judged_by(_none), Wrong.DUPLICATED, 10, first=30),
}
