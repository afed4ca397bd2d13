"""What the emulators do, as entries of a universe's journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from journal import entries
from journal.entries import Entry, Position, digest_of
from outbox_emulators.recording import Recording
from relay.events import Reason
from relay.holds import ORDER_TYPE, PARKED_ID, is_pending
from relay.quarantine.record import RECORD_TYPE

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


class Notes:
    """Writes the journal of a universe, by what its services do.

    Attributes:
        journal: What has happened, in order.
        leases: The state of each lease, by its id.
        awaited: The events that no lease has passed: the effective partition key and position of each.
        parked: The keys that are parked.
        discarded: The events whose records an operator has begun to discard.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.journal: list[Entry] = []
        self.leases: dict[str, Line] = {}
        self.awaited: dict[Name, tuple[str, int]] = {}
        self.parked: set[str] = set()
        self.discarded: set[Name] = set()
        self.settled: set[Name] = set()
        self.unsound: dict[Name, float] = {}
        self._now = now
        self._records: dict[Name, Name] = {}

    @property
    def at(self) -> float:
        """The time for the journal."""
        return round(self._now(), 6)

    def of_topic(self, line: Line) -> None:
        """The topic accepted a message, or dropped it."""
        kind = entries.Accepted if line["outcome"] == "accepted" else entries.Duplicate
        digest = digest_of(json.loads(line["body"]), line["subject"], line["properties"].get("sequence"))
        of = {"key": line["session_id"], "id": line["message_id"], "number": line["sequence_number"]}
        self.journal.append(kind(at=self.at, digest=digest, **of))

    def of_account(self, line: Line) -> None:
        """The account committed something."""
        container = line["container"].rpartition("/")[2]
        note: Callable[[Line, int, Line], None] = getattr(self, f"_in_{container}")
        for index, change in enumerate(line["changes"]):
            note(line, index, change)

    def _in_data(self, line: Line, index: int, change: Line) -> None:
        document = change["item"]
        data = document["data"]
        is_sound = isinstance(data, dict) and not change["id"].startswith("refused")
        key, event_id = document["partitionKey"], change["id"]
        if not is_sound:
            self.unsound[key, event_id] = self._now()
        self.awaited[key, event_id] = line["effective"], change["place"]
        self.journal.append(
            entries.Committed(
                at=self.at,
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
            self.journal.append(
                entries.Checkpointed(at=self.at, by=writer, owner=writer, position=position, **of)
            )
        if item["Owner"] != owner_before:
            if owner_before is not None:
                self.journal.append(entries.Lost(at=self.at, by=owner_before, owner=owner_before, **of))
            if item["Owner"] is not None:
                self.journal.append(entries.Claimed(at=self.at, by=item["Owner"], owner=item["Owner"], **of))

    def _passed(self, minimum: str, maximum: str, position: int) -> None:
        passed = [
            name
            for name, (effective, place) in self.awaited.items()
            if minimum <= effective < maximum and place <= position
        ]
        for name in passed:
            del self.awaited[name]

    def _in_quarantine(self, line: Line, index: int, change: Line) -> None:
        item, (key,) = change["item"], line["key"]
        record = (key, change["id"])
        if item is None:
            if change["id"] == PARKED_ID:
                self.parked.discard(key)
            name = self._records.pop(record, None)
            if name is not None and name not in self.discarded:
                self.journal.append(entries.Released(at=self.at, key=name[0], id=name[1]))
        elif item["type"] == RECORD_TYPE and record not in self._records:
            self._set_aside(record, item)
        elif item["type"] == ORDER_TYPE and is_pending(item):
            self.journal.append(entries.Ordered(at=self.at, key=key, id=item["eventId"]))
        elif change["id"] == PARKED_ID:
            self.parked.add(key)

    def _set_aside(self, record: Name, item: Line) -> None:
        key, event_id = name = record[0], item["document"]["id"]
        self._records[record] = name
        if item["reason"] == Reason.KEY_PARKED:
            self.journal.append(entries.Parked(at=self.at, key=key, id=event_id))
        else:
            self.settled.add(name)
            self.journal.append(entries.SetAside(at=self.at, key=key, id=event_id, reason=item["reason"]))
