"""The emulators' actions, as entries of a universe's journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from outbox_relay.emulators.recording import Recording
from relay.core.holds import PARKED_ID
from verification.journal import entries
from verification.journal.entries import Position, digest_of
from verification.simulation.journal_keeper import Notes

Line = Mapping[str, Any]
Name = tuple[str, str]


class Recorder(Recording):
    """Hands each line of a recording on, instead of writing it to a file."""

    def __init__(self, take: Callable[[Line], None]) -> None:
        self._take = take

    def add(self, **values: Any) -> None:
        self._take(orjson.loads(orjson.dumps(values, default=str)))

    def close(self) -> None:
        pass


class Watch:
    """Writes the journal of a universe, by what the emulators do.

    Attributes:
        leases: The state of each lease, by its id.
        awaited: The events that no lease has passed: the effective partition key and position of each.
        parked: The keys that are parked.
    """

    def __init__(self, notes: Notes) -> None:
        self.leases: dict[str, Line] = {}
        self.awaited: dict[Name, tuple[str, int]] = {}
        self.parked: set[str] = set()
        self._notes = notes
        self._items: dict[Name, Line] = {}

    def of_topic(self, line: Line) -> None:
        """Note that the topic accepted a message, or dropped it."""
        kind = entries.Accepted if line["outcome"] == "accepted" else entries.Duplicate
        digest = digest_of(json.loads(line["body"]), line["subject"], line["properties"].get("sequence"))
        of = {"key": line["session_id"], "id": line["message_id"], "number": line["sequence_number"]}
        self._notes.journal.append(kind(at=self._notes.at, digest=digest, **of))

    def of_account(self, line: Line) -> None:
        """Note that the account committed something."""
        container = line["container"].rpartition("/")[2]
        note: Callable[[Line, int, Line], None] = getattr(self, f"_in_{container}")
        for index, change in enumerate(line["changes"]):
            note(line, index, change)

    def _in_data(self, line: Line, index: int, change: Line) -> None:
        document = change["item"]
        data = document["data"]
        is_sound = isinstance(data, dict) and not change["id"].startswith("refused")
        key, event_id = document["partitionKey"], change["id"]
        self.awaited[key, event_id] = line["effective"], change["place"]
        self._notes.journal.append(
            entries.Committed(
                at=self._notes.at,
                by="writer",
                key=key,
                id=event_id,
                position=(change["place"], index),
                digest=digest_of(data, "Changed"),
                place=line["effective"],
                sound=is_sound,
            )
        )

    def _in_leases(self, line: Line, index: int, change: Line) -> None:
        name, item = change["id"], change["item"]
        before = self.leases.pop(name, None)
        if item is None or "LeaseToken" not in item:
            return
        self.leases[name] = item
        token = item["ContinuationToken"]
        bounds = item["FeedRange"]["Range"]
        of: dict[str, Any] = {"lease": name.rpartition("..")[2], "covers": (bounds["min"], bounds["max"])}
        owner_before = None if before is None else before["Owner"]
        if token is not None and (before is None or token != before["ContinuationToken"]):
            writer = item["Owner"] or owner_before or ""
            position: Position = (int(token.strip('"')),)
            self._passed(bounds["min"], bounds["max"], position[0])
            self._notes.journal.append(
                entries.Checkpointed(at=self._notes.at, by=writer, owner=writer, position=position, **of)
            )
        if item["Owner"] != owner_before:
            if owner_before is not None:
                self._notes.journal.append(
                    entries.Lost(at=self._notes.at, by=owner_before, owner=owner_before, **of)
                )
            if item["Owner"] is not None:
                self._notes.journal.append(
                    entries.Claimed(at=self._notes.at, by=item["Owner"], owner=item["Owner"], **of)
                )

    def _passed(self, minimum: str, maximum: str, position: int) -> None:
        passed = [
            name
            for name, (effective, place) in self.awaited.items()
            if minimum <= effective < maximum and place <= position
        ]
        for name in passed:
            del self.awaited[name]

    def _in_quarantine(self, line: Line, index: int, change: Line) -> None:
        (key,), name = line["key"], change["id"]
        before, item = self._items.pop((key, name), None), change["item"]
        if item is not None:
            self._items[key, name] = item
        if name == PARKED_ID:
            (self.parked.discard if item is None else self.parked.add)(key)
        if item is None and before is not None:
            self._notes.stored(False, key, before)
        elif item is not None and before is None:
            self._notes.stored(True, key, item)
