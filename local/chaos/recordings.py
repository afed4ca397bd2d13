"""The emulators' and a database's records of a campaign, as entries of the campaign's journal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from local.chaos.contents import ADDRESS
from local.stack.environment import TOPIC
from verification.journal import entries
from verification.journal.entries import Entry, Position, Range, digest_of

RECORD = "quarantinedEvent"
"""The type of a quarantined document's record."""
_PARKED = "key-parked"


class Origin(NamedTuple):
    """Where an event is in the source: since when, its position, and the place that says which lease covers it."""

    at: float
    position: Position | None
    place: str


@dataclass(slots=True)
class Recorded:
    """The recorded changes in an outbox.

    Attributes:
        origins: Each event by its id.
        entries: What happened to leases and quarantine, in order.
    """

    origins: dict[str, Origin] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)


class Lease(NamedTuple):
    """The state of a lease, or a claim. Only claims have an epoch."""

    owner: str | None = None
    epoch: int | None = None
    position: Position | None = None
    covers: Range | None = None


class Leases:
    """Leases, or claims, of which every change is seen: what each change means."""

    def __init__(self, found: list[Entry]) -> None:
        """`found` gets the entries."""
        self._found = found
        self._leases: dict[str, Lease] = {}
        self._removed: Counter[str] = Counter()

    def changed(self, at: float, name: str, after: Lease) -> None:
        """Note that the lease is now as `after`.

        A position that was written together with a change of the owner counts as written before it: whoever takes
        a lease continues where it stands.
        """
        before = self._leases.get(name, Lease())
        self._leases[name] = after
        # A lease that was deleted and made again is another one.
        lease = f"{name}~{self._removed[name]}" if self._removed[name] else name
        of: dict[str, Any] = {"at": at, "lease": lease, "covers": after.covers}
        if after.position is not None and after.position != before.position:
            writer = after.owner or before.owner or ""
            written: dict[str, Any] = {
                "owner": writer,
                "by": writer,
                "epoch": after.epoch,
                "position": after.position,
            }
            self._found.append(entries.Checkpointed(**of, **written))
        if (after.owner, after.epoch) != (before.owner, before.epoch):
            if before.owner is not None:
                self._found.append(entries.Lost(**of, owner=before.owner, epoch=before.epoch))
            if after.owner is not None:
                self._found.append(entries.Claimed(**of, owner=after.owner, by=after.owner, epoch=after.epoch))

    def removed(self, at: float, name: str) -> None:
        """Note that the lease was deleted, if there was one of this name."""
        if name in self._leases:
            self.changed(at, name, self._leases[name]._replace(owner=None))
            del self._leases[name]
            self._removed[name] += 1


class Quarantine:
    """The records in quarantine, of which each that is stored or removed is seen."""

    def __init__(self, found: list[Entry]) -> None:
        """`found` gets the entries."""
        self._found = found
        self._records: dict[str, tuple[str, str]] = {}

    def stored(self, at: float, record_id: str, key: str, event_id: str, reason: str) -> None:
        """Note that a record was stored, or changed."""
        if record_id in self._records:
            return
        self._records[record_id] = (key, event_id)
        if reason == _PARKED:
            self._found.append(entries.Parked(at=at, key=key, id=event_id))
        else:
            self._found.append(entries.SetAside(at=at, key=key, id=event_id, reason=reason))

    def removed(self, at: float, record_id: str) -> None:
        """Note that a record was removed.

        Its event was released, unless the operator says that it was discarded.
        """
        if event := self._records.pop(record_id, None):
            self._found.append(entries.Released(at=at, key=event[0], id=event[1]))


def _every(_: str, /) -> bool:
    return True


def of_topic(
    path: Path,
    entity: str = TOPIC,
    is_of_stream: Callable[[str], bool] = _every,
    contents: Mapping[str, bytes] = MappingProxyType({}),
) -> Iterator[Entry]:
    """Yield the entries for messages of a stream that a topic or queue accepted or dropped.

    Its emulator recorded them.

    Args:
        path: The recording.
        entity: Its name.
        is_of_stream: Whether messages of this session are the stream's.
        contents: The bodies that messages only name, by their addresses.
    """
    for line in _lines(path):
        if line["entity"] == entity and is_of_stream(line["session_id"] or ""):
            of = entries.Accepted if line["outcome"] == entries.Accepted.kind else entries.Duplicate
            body = contents.get(line["properties"].get(ADDRESS), line["body"])
            carried = body_of(body), line["subject"], line["properties"].get("sequence")
            yield of(
                at=line["at"],
                key=line["session_id"] or "",
                id=line["message_id"] or "",
                digest=digest_of(*carried),
                number=line["sequence_number"],
            )


def of_account(
    path: Path,
    outbox: str = "data",
    quarantined: str = "quarantine",
    is_of_stream: Callable[[str], bool] = _every,
) -> Recorded:
    """Return the entries for the containers of a Cosmos DB account, as its emulator recorded them.

    Args:
        path: The recording.
        outbox: The container of the stream's events.
        quarantined: The container of its quarantine.
        is_of_stream: Whether a lease with this id is the stream's.
    """
    recorded = Recorded()
    leases, quarantine = Leases(recorded.entries), Quarantine(recorded.entries)
    for line in _lines(path):
        container = line["container"].rpartition("/")[2]
        for index, change in enumerate(line["changes"]):
            if container == outbox and change["item"] is not None:
                # Of the whole commit: within a merged partition, the numbers of two commits may overlap.
                origin = Origin(line["at"], (line["lsn"], index), line["effective"])
                recorded.origins.setdefault(change["id"], origin)
            elif container == "leases" and is_of_stream(change["id"]):
                _lease(leases, line["at"], change)
            elif container == quarantined:
                _record(quarantine, line["at"], line["key"], change)
    return recorded


def _lease(leases: Leases, at: float, change: Mapping[str, Any]) -> None:
    item, name = change["item"], change["id"].rpartition("..")[2]
    if item is None:
        leases.removed(at, name)
    elif "LeaseToken" in item:
        token = item["ContinuationToken"]
        position = None if token is None else (int(token.strip('"')),)
        bounds = item["FeedRange"]["Range"]
        leases.changed(at, name, Lease(item["Owner"], None, position, (bounds["min"], bounds["max"])))


def _record(quarantine: Quarantine, at: float, key: list[Any], change: Mapping[str, Any]) -> None:
    item = change["item"]
    # A record's id is unique within its partition key.
    record_id = f"{key} {change['id']}"
    if item is None:
        quarantine.removed(at, record_id)
    elif item["type"] == RECORD:
        quarantine.stored(at, record_id, item["partitionKey"], item["documentId"], item["reason"])


def claim(owner: str | None, epoch: int, cursor: str) -> Lease:
    """Return the state of a shard's claim. The cursor is a UUID, all zeros at the beginning."""
    position = position_of(cursor)
    return Lease(owner, epoch, position if any(position) else None)


def position_of(ulid: str) -> Position:
    """Return a position in an SQL feed, a UUID, as a number."""
    return (int(ulid.replace("-", ""), 16),)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def body_of(text: str | bytes) -> Any:
    """Return the value of a message's body, also of one that is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return {"no JSON": str(text)}
