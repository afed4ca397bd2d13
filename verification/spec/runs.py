"""The checks of each specification: worlds in which it holds, and runs that show which parts it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SAFETY = ("G1", "G2", "G3", "G5")
LIVENESS = "G4"


def _relay(in_first: int, commits: int, time: int, faults: int, first: int = 1, last: int = 1) -> dict[str, int]:
    """Return a world of Relay with that many events in commit 1, and its arrangements.

    It has that many commits, ticks and faults.
    """
    sizes = {"InFirst": in_first, "Commits": commits, "Window": 2, "MaxTime": time, "MaxFaults": faults}
    return sizes | {"First": first, "Last": last}


def _claims(commits: int, window: int, faults: int) -> dict[str, int]:
    return {"Commits": commits, "Window": window, "MaxFaults": faults}


def _park(policy: str, events: int, faults: int = 1, orders: int = 0) -> dict[str, int | str]:
    """Return a world of Park, whose first event is poisoned."""
    sizes = {"Count": events, "Ids": events, "Poison": 1, "Orders": orders, "MaxFaults": faults}
    return {"Policy": f'"{policy}"'} | sizes


_PARK, _LATER = _park("park", 2), _park("park", 3, faults=0)
# Assumptions that take steps away: what is not stuck without them is not stuck with them.
_MORE_STEPS = {"AttemptsDoNotOverlap": "FALSE", "OrdersComeInTime": "FALSE"}
_STUCK = _park("block", 2, faults=0, orders=2) | _MORE_STEPS

_SHARES = {"Count": 2, "MaxFaults": 1}


def _feed(writers: int, old: int = 0, *, page: int = 1, generation: int = 2, shards: int = 1) -> dict[str, int]:
    """Return a world of Feed with that many transactions, events that are older than it, and rows of a page."""
    sizes = {"Generation": generation, "Count": shards, "Writers": writers, "Old": old, "Page": page}
    return sizes | {"Anyway": 0, "Elsewhere": 0}


def _rules(commits: int, time: int, faults: int) -> dict[str, int]:
    return {"Commits": commits, "MaxTime": time, "MaxFaults": faults}


# Leases overlap: what has passed one of them may come again, but nothing is lost, or comes out of order.
_OVERLAPPING = {"OldLeasesGo": "FALSE"}

_ANYWAY = {"Anyway": 1}
_ELSEWHERE = {"Elsewhere": 1}


@dataclass(frozen=True, slots=True)
class Run:
    """A world to check.

    Attributes:
        module: The specification.
        sizes: Its constants that are numbers or texts, and those of its parts that are not needed.
        without: The safeguard or assumption that is taken out; None if none is.
        violated: The guarantee that does not hold then; None if all hold.
    """

    module: str
    sizes: Mapping[str, Any]
    without: str | None = None
    violated: str | None = None
    liveness: bool = False
    """True to check the liveness property, without symmetry; otherwise those of safety."""
    processes: int = 2
    tolerated: tuple[str, ...] = ()
    """Guarantees that do not hold in this world, as docs/guarantees.md says."""

    @property
    def name(self) -> str:
        if self.without:
            return f"{self.module} without {self.without}"
        sizes = ", ".join(f"{name} {value}" for name, value in self.sizes.items())
        return f"{self.module} with {sizes}: {', '.join(self.guarantees)}"

    @property
    def guarantees(self) -> list[str]:
        """The properties that are checked."""
        text = text_of(self.module)
        names = (LIVENESS,) if self.liveness else SAFETY
        return [name for name in names if f"\n{name} ==" in text and name not in self.tolerated]


HOLDING = (
    Run("Claims", _claims(2, 4, 1)),
    Run("Relay", _relay(1, 1, 2, 2, 2, 4)),
    Run("Relay", _relay(1, 1, 2, 2, 2, 4) | _OVERLAPPING, tolerated=("G3",)),
    Run("Relay", _relay(1, 1, 2, 2, 1, 4) | _OVERLAPPING, tolerated=("G3",)),
    Run("Relay", _relay(1, 2, 0, 1, 2, 3), liveness=True),
    Run("Claims", _claims(1, 0, 1), liveness=True),
    Run("Relay", _relay(2, 1, 1, 1), liveness=True),
    Run("Park", _park("skip", 2)),
    Run("Shares", _SHARES, liveness=True, processes=3),
    Run("Shares", _SHARES | {"Count": 3}, liveness=True),
    Run("Park", _STUCK, liveness=True),
    Run("Park", _park("park", 2, faults=0) | _MORE_STEPS, liveness=True),
    Run("Park", _LATER),
    Run("Park", _park("block", 2, faults=0, orders=1)),
    Run("Feed", _feed(3, shards=2)),
    Run("Feed", _feed(3, page=2) | _ELSEWHERE),
    Run("Feed", _feed(1, 2, shards=2) | _ANYWAY),
    Run("Feed", _feed(3, generation=1, shards=2)),
    Run("Feed", _feed(1, 2)),
    Run("Feed", _feed(1, 1), liveness=True),
    Run("Feed", _feed(2, generation=1, shards=2), liveness=True),
    Run("Rules", _rules(2, 1, 1)),
    Run("Rules", _rules(1, 0, 3)),
    Run("Rules", _rules(1, 0, 1), liveness=True),
)
"""Worlds in which every guarantee holds, the largest first: two are checked at a time."""

CONTROLS = (
    Run("Relay", _relay(1, 1, 0, 1), "WithholdsCheckpoint", "G1"),
    Run("Relay", _relay(2, 1, 0, 1), "StopsBehindFailure", "G2"),
    Run("Relay", _relay(2, 1, 0, 0), "SortsCommits", "G2"),
    Run("Relay", _relay(1, 1, 0, 1), "EveryWaitEnds", "G4", liveness=True),
    Run("Relay", _relay(1, 1, 2, 1), "RemembersAccepted", "G3"),
    Run("Relay", _relay(1, 1, 2, 1), "ComparesOldEvents", "G3"),
    Run("Relay", _relay(1, 1, 2, 1), "ClearanceExpires", "G3"),
    Run("Relay", _relay(1, 1, 2, 1, 1, 2) | _OVERLAPPING, "EveryLeaseCounts", "G1", tolerated=("G3",)),
    Run("Relay", _relay(1, 1, 0, 1), "TopicDetectsDuplicates", "G3"),
    Run("Relay", _relay(2, 1, 0, 0), "PagesEndWithCommits", "G2"),
    Run("Relay", _relay(1, 2, 2, 1), "OwnersCheckpoint", "G3"),
    Run("Relay", _relay(1, 1, 2, 1, 1, 2), "OwnersDivide", "G3"),
    Run("Relay", _relay(1, 2, 2, 1, 2, 3), "NumbersOutliveMerges", "G3"),
    Run("Relay", _relay(1, 1, 2, 2, 2, 2), "OldLeasesGo", "G3"),
    Run("Relay", _relay(1, 1, 0, 0), "EventsAreImmutable", "G5"),
    Run("Relay", _relay(1, 1, 2, 1), "TransfersEnd", "G3"),
    Run("Relay", _relay(1, 1, 2, 1), "WindowOutlastsOutage", "G3"),
    Run("Feed", _feed(2, page=2), "ReadersNumber", "G1"),
    Run("Feed", _feed(2, page=2), "NumbersUnderLock", "G1"),
    Run("Feed", _feed(2, page=2), "SnapshotAfterLock", "G3"),
    Run("Feed", _feed(2, page=2), "SortsBySequence", "G2"),
    Run("Feed", _feed(2), "TakesTheFirst", "G2"),
    Run("Feed", _feed(2), "PruneWaitsForConsumers", "G1"),
    Run("Feed", _feed(2), "PruneCountsTheAbsent", "G1"),
    Run("Feed", _feed(3) | _ELSEWHERE, "RefusesPrunedCursors", "G1"),
    Run("Feed", _feed(1, 1), "RefusesUsedShards", "G2"),
    Run("Feed", _feed(1, 1) | _ANYWAY, "RefusesAfterPrune", "G3"),
    Run("Feed", _feed(1, 1) | _ANYWAY, "ListsInOneSnapshot", "G3"),
    Run("Feed", _feed(0, 2), "MovesInOrder", "G2"),
    Run("Feed", _feed(0, 2), "MovesUnderLock", "G3"),
    Run("Feed", _feed(0, 2), "MovesRowsWhole", "G3"),
    Run("Feed", _feed(2, page=2), "SequenceHasNoCache", "G2"),
    Run("Feed", _feed(2, page=2), "SnapshotsAreConsistent", "G2"),
    Run("Feed", _feed(1, 1), "WritersWaitForBackfill", "G2"),
    Run("Claims", _claims(1, 4, 1), "StoresUnderItsEpoch", "G3"),
    Run("Claims", _claims(1, 4, 1), "TakingRaisesEpoch", "G3"),
    Run("Claims", _claims(1, 4, 0), "TakesAsItRead", "G3"),
    Run("Claims", _claims(1, 4, 1), "SendsWhileItHolds", "G3"),
    Run("Claims", _claims(1, 4, 1), "SendsInOrder", "G1"),
    Run("Claims", _claims(1, 4, 0), "StoresWhatWasAccepted", "G1"),
    Run("Claims", _claims(1, 0, 1), "DeadClaimsAreTaken", "G4", liveness=True),
    Run("Claims", _claims(1, 4, 1), "TopicDetectsDuplicates", "G3"),
    Run("Claims", _claims(1, 4, 1), "TransfersEnd", "G3"),
    Run("Claims", _claims(1, 4, 1), "ClocksRunAlike", "G3"),
    Run("Claims", _claims(1, 4, 1), "WindowOutlastsOutage", "G3"),
    Run("Shares", _SHARES, "TakesTheDead", "G4", liveness=True),
    Run("Shares", _SHARES, "CountsWhoAsks", "G4", liveness=True),
    Run("Shares", {"Count": 3, "MaxFaults": 0}, "AsksWhoHasMore", "G4", liveness=True),
    Run("Shares", _SHARES | {"MaxFaults": 2}, "DeclinesWhatItKeeps", "G4", liveness=True),
    Run("Park", _park("skip", 1), "StoresBeforeSuccess", "G1"),
    Run("Park", _PARK, "StopsBehindPoison", "G2"),
    Run("Park", _PARK | {"Poison": 0, "Orders": 1}, "WaitsForPredecessors", "G2"),
    Run("Park", _PARK | {"MaxFaults": 0}, "ReadsEachTime", "G2"),
    Run("Park", _STUCK | {"Count": 1, "Ids": 1, "Orders": 1}, "ReadsOrdersAgain", "G4", liveness=True),
    Run("Park", _park("skip", 1, faults=2), "WaitsForReading", "G3"),
    Run("Park", _park("skip", 1), "ComparesWhatWasTried", "G3"),
    Run("Park", _PARK, "ReadsAgain", "G2"),
    Run("Park", _park("skip", 1), "ComparesBeforeStoring", "G3"),
    Run("Park", _park("skip", 1, faults=2), "RemembersSetAside", "G3"),
    Run("Park", _park("park", 1), "OrderWithRecord", "G3"),
    Run("Park", _park("skip", 1), "KeepsCarriedOut", "G3"),
    Run("Park", _park("skip", 2) | {"Ids": 1}, "OrdersHavePlaces", "G1"),
    Run("Park", _PARK | {"Poison": 2}, "MarkerHasPlace", "G3"),
    Run("Park", _LATER, "BatchTouchesMarker", "G2"),
    Run("Park", _LATER, "UnparksAsRead", "G2"),
    Run("Park", _park("park", 1, faults=0), "UnparksInterrupted", "G4", liveness=True),
    Run("Park", _PARK, "ReleasesInOrder", "G2"),
    Run("Park", _park("skip", 1), "RemovesAfterAcceptance", "G1"),
    Run("Park", _park("skip", 1, orders=1), "KeepsWhatWasSetAside", "G3"),
    Run("Park", _park("block", 1, orders=1, faults=2), "WithdrawsAsRead", "G3"),
    Run("Park", _PARK, "RemovalLeavesOrder", "G3"),
    Run("Park", _park("skip", 2), "OrdersOutlastComparisons", "G3"),
    Run("Park", _park("skip", 1), "AttemptsDoNotOverlap", "G3"),
    Run("Park", _PARK, "ReadsAreCurrent", "G3"),
    Run("Park", _LATER, "CountsAreCurrent", "G2"),
    Run("Park", _park("skip", 1), "SettingAsideTakesTime", "G3"),
    Run("Park", _park("block", 1, orders=1), "OrdersComeInTime", "G3"),
    Run("Rules", _rules(1, 1, 1), "RoutesByCommitTime", "G3"),
    Run("Rules", _rules(1, 1, 1), "RoutesWhatIsFinal", "G3"),
    Run("Rules", _rules(1, 1, 1), "BeginsBehindTheBound", "G3"),
    Run("Rules", _rules(1, 1, 1), "ComparesAndSets", "G3"),
    Run("Rules", _rules(1, 1, 3), "BoundIsWithPositions", "G1"),
    Run("Rules", _rules(1, 0, 1), "EveryDestinationReads", "G4", liveness=True),
    Run("Rules", _rules(1, 1, 1), "TimesAreStored", "G3"),
)
"""Each safeguard and each assumption, taken out of a world that is just large enough."""

NIGHT = (
    Run("Rules", _rules(1, 1, 3)),
    Run("Park", _PARK),
    Run("Relay", _relay(2, 1, 3, 2, 1, 2)),
    Run("Relay", _relay(1, 2, 2, 1, 2, 3)),
    Run("Claims", _claims(2, 8, 2)),
    Run("Relay", _relay(1, 1, 3, 2, 2, 3)),
    Run("Claims", _claims(2, 10, 3)),
    Run("Feed", _feed(4, generation=1, shards=2)),
    Run("Park", _park("block", 2, orders=1)),
    Run("Park", _park("skip", 2, orders=1)),
    Run("Park", _PARK | {"Orders": 1}),
    Run("Park", _park("skip", 2, faults=2)),
    Run("Park", _LATER | {"MaxFaults": 1}),
    Run("Park", _park("skip", 2) | _MORE_STEPS, liveness=True),
    Run("Park", _PARK | _MORE_STEPS, liveness=True),
    Run("Park", _PARK | {"MaxFaults": 2}),
    Run("Feed", _feed(2, 2, page=2, shards=2) | _ANYWAY),
    Run("Feed", _feed(4, page=2) | _ELSEWHERE),
    Run("Feed", _feed(4, shards=2)),
    Run("Relay", _relay(2, 1, 4, 3, 1, 2)),
    Run("Relay", _relay(1, 2, 3, 2, 1, 2)),
    Run("Relay", _relay(1, 2, 2, 2, 2, 3)),
    Run("Claims", _claims(3, 10, 3)),
    Run("Relay", _relay(2, 2, 3, 2, 1, 3)),
    Run("Relay", _relay(2, 2, 3, 3, 1, 4)),
)
"""Larger worlds, the quickest first."""


_PART = re.compile(r"^ {4}(\w+),? +\\\*", re.MULTILINE)


def parts_of(module: str) -> list[str]:
    """Return the safeguards and the assumptions of a specification, as it declares them."""
    text = text_of(module)
    declared = text[text.index("afeguards") : text.index("VARIABLES")]
    return _PART.findall(declared)


def text_of(module: str) -> str:
    """Return the text of a specification."""
    return (FOLDER / f"{module}.tla").read_text(encoding="utf-8")
