"""What is wrong in a journal of the core's world. It knows nothing of the code that has run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Entry = dict[str, Any]
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that does not hold, and where one sees it."""

    guarantee: str
    detail: str


class _Journal:
    """The entries by what they are about."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.by_kind: dict[str, list[Entry]] = defaultdict(list)
        for number, entry in enumerate(entries):
            self.by_kind[entry["what"]].append({**entry, "number": number})
        self.committed = {_name(entry): entry for entry in self.by_kind["committed"]}
        self.copies = self._by_name("accepted")
        self.set_aside = self._by_name("set_aside")
        self.ordered = self._by_name("ordered")
        self.removed = self._by_name("removed")
        self.discarded = self._by_name("discards")

    def _by_name(self, kind: str) -> dict[Name, list[Entry]]:
        found: dict[Name, list[Entry]] = defaultdict(list)
        for entry in self.by_kind[kind]:
            found[_name(entry)].append(entry)
        return found

    def passed_at(self, event: Entry) -> float | None:
        """When a lease first passed an event."""
        for entry in self.by_kind["checkpointed"]:
            covers = entry["minimum"] <= event["effective"] < entry["maximum"]
            if covers and entry["position"] >= event["position"][0] and entry["at"] >= event["at"]:
                return float(entry["at"])
        return None


def _name(entry: Entry) -> Name:
    return entry["key"], entry["id"]


def judge(entries: Sequence[Entry], policy: str, window_s: float) -> list[Violation]:
    """All violations."""
    journal = _Journal(entries)
    found = [Violation("G4", "not everything is published") for _ in journal.by_kind["stuck"]]
    found += _lost(journal) if not found else []
    found += _unordered(journal, policy)
    found += _repeated(journal, window_s)
    found += _altered(journal)
    return found


def _lost(journal: _Journal) -> list[Violation]:
    return [
        Violation("G1", f"{name} was neither accepted nor set aside")
        for name in journal.committed
        if not journal.copies.get(name) and not journal.set_aside.get(name)
    ]


def _unordered(journal: _Journal, policy: str) -> list[Violation]:
    """The first copies of a key come in the order of their commits, and none before a predecessor is settled."""
    found = []
    keys: dict[str, list[Name]] = defaultdict(list)
    for name, event in journal.committed.items():
        keys[event["key"]].append(name)
    for names in keys.values():
        # Of all that come before: the first copies, or until when they were in quarantine.
        settled = -1
        for name in sorted(names, key=lambda each: journal.committed[each]["position"]):
            copies, records = journal.copies.get(name), journal.set_aside.get(name)
            if copies:
                number = copies[0]["number"]
                if number < settled:
                    found.append(Violation("G2", f"{name} came before a predecessor was settled"))
                settled = max(settled, number)
            elif records and policy == "park":
                settled = max(settled, records[0]["number"])
            elif policy == "block" and journal.ordered.get(name):
                # An operator lets those behind it pass.
                settled = max(settled, journal.ordered[name][0]["number"])
    return found


def _repeated(journal: _Journal, window_s: float) -> list[Violation]:
    found = []
    for name, copies in journal.copies.items():
        event = journal.committed[name]
        if len(copies) > 1:
            passed = journal.passed_at(event)
            if passed is not None and passed <= copies[0]["at"] + window_s / 2:
                found.append(Violation("G3", f"{name} came {len(copies)} times"))
        records = journal.set_aside.get(name, [])
        if len(records) > 1:
            found.append(Violation("G3", f"{name} was set aside {len(records)} times"))
        if records and not journal.removed.get(name):
            found.append(Violation("G3", f"{name} was accepted and is set aside"))
        if journal.discarded.get(name):
            found.append(Violation("G3", f"{name} was accepted, and was discarded"))
    return found


def _altered(journal: _Journal) -> list[Violation]:
    return [
        Violation("G5", f"{name} has another body")
        for name, copies in journal.copies.items()
        if any(json.loads(copy["body"]) != journal.committed[name]["data"] for copy in copies)
    ]
