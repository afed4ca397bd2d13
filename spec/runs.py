"""What is checked of each specification: worlds in which it holds, and what its parts are needed for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
SAFETY = ("G1", "G2", "G3")
LIVENESS = "G4"

_RELAY = {"Commits": 1, "Window": 2, "MaxTime": 3, "MaxFaults": 2}
_RELAY_STUCK = {"Commits": 1, "Window": 2, "MaxTime": 1, "MaxFaults": 1}
_CLAIMS = {"Commits": 2, "Window": 2, "MaxTime": 4, "MaxFaults": 2}
_FEED = {"Writers": 3}
_FEED_STUCK = {"Writers": 2}


@dataclass(frozen=True, slots=True)
class Run:
    """A world to check.

    Attributes:
        module: The specification.
        sizes: Its constants that are numbers.
        without: The safeguard or assumption that is taken out; None if none is.
        violated: The guarantee that does not hold then; None if all hold.
    """

    module: str
    sizes: dict[str, int]
    without: str | None = None
    violated: str | None = None
    liveness: bool = False
    """Whether the liveness property is checked, without symmetry; otherwise those of safety."""

    @property
    def name(self) -> str:
        if self.without:
            return f"{self.module} without {self.without}"
        sizes = ", ".join(f"{name} {value}" for name, value in self.sizes.items())
        return f"{self.module} with {sizes}: {LIVENESS if self.liveness else ', '.join(SAFETY)}"


HOLDING = (
    Run("Relay", _RELAY),
    Run("Relay", _RELAY_STUCK, liveness=True),
    Run("Feed", _FEED),
    Run("Feed", _FEED_STUCK, liveness=True),
    Run("Claims", _CLAIMS),
)

CONTROLS = (
    Run("Relay", _RELAY, "WithholdsCheckpoint", "G1"),
    Run("Relay", _RELAY, "StopsBehindFailure", "G2"),
    Run("Relay", _RELAY, "SortsCommits", "G2"),
    Run("Relay", _RELAY_STUCK, "EveryWaitEnds", "G4", liveness=True),
    Run("Relay", _RELAY, "RemembersAccepted", "G3"),
    Run("Relay", _RELAY, "ComparesOldEvents", "G3"),
    Run("Relay", _RELAY, "ClearanceExpires", "G3"),
    Run("Relay", _RELAY, "TopicDetectsDuplicates", "G3"),
    Run("Relay", _RELAY, "PagesEndWithCommits", "G2"),
    Run("Relay", _RELAY | {"Commits": 2, "MaxTime": 2}, "OwnersCheckpoint", "G3"),
    Run("Relay", _RELAY, "TransfersEnd", "G3"),
    Run("Relay", _RELAY, "WindowOutlastsOutage", "G3"),
    Run("Feed", _FEED, "ReadersNumber", "G1"),
    Run("Feed", _FEED, "NumbersUnderLock", "G1"),
    Run("Feed", _FEED, "SnapshotAfterLock", "G3"),
    Run("Feed", _FEED, "SortsBySequence", "G2"),
    Run("Feed", _FEED, "PruneWaitsForConsumers", "G1"),
    Run("Feed", _FEED, "SequenceHasNoCache", "G2"),
    Run("Feed", _FEED, "SnapshotsAreConsistent", "G2"),
    Run("Claims", _CLAIMS, "StoresUnderItsEpoch", "G3"),
    Run("Claims", _CLAIMS, "TakingRaisesEpoch", "G3"),
    Run("Claims", _CLAIMS, "SendsWhileItHolds", "G3"),
    Run("Claims", _CLAIMS, "SendsInOrder", "G1"),
    Run("Claims", _CLAIMS, "StoresWhatWasAccepted", "G1"),
    Run("Claims", _CLAIMS, "TopicDetectsDuplicates", "G3"),
    Run("Claims", _CLAIMS | {"MaxFaults": 3}, "ClocksRunAlike", "G3"),
    Run("Claims", _CLAIMS, "WindowOutlastsOutage", "G3"),
)
"""Each safeguard and each assumption, taken out."""

NIGHT = (
    Run("Relay", {"Commits": 2, "Window": 2, "MaxTime": 3, "MaxFaults": 1}),
    Run("Relay", {"Commits": 2, "Window": 2, "MaxTime": 1, "MaxFaults": 1}, liveness=True),
    Run("Feed", {"Writers": 4}),
    Run("Claims", {"Commits": 3, "Window": 2, "MaxTime": 5, "MaxFaults": 3}),
    Run("Relay", {"Commits": 1, "Window": 2, "MaxTime": 4, "MaxFaults": 3}),
    Run("Relay", {"Commits": 1, "Window": 4, "MaxTime": 5, "MaxFaults": 2}),
    Run("Relay", {"Commits": 2, "Window": 2, "MaxTime": 3, "MaxFaults": 2}),
)
"""Larger worlds, the quickest first."""


_PART = re.compile(r"^ {4}(\w+),? +\\\*", re.MULTILINE)


def parts_of(module: str) -> list[str]:
    """The safeguards and the assumptions of a specification, as it declares them."""
    text = (FOLDER / f"{module}.tla").read_text(encoding="utf-8")
    declared = text[text.index("afeguards") : text.index("VARIABLES")]
    return _PART.findall(declared)
