"""The progress of a replay in a file: a line for each chunk, appended after Service Bus has accepted it.

For each partition key the file has the last `_lsn` that was handled, and the ids with that `_lsn`, as all
documents of a transaction share one; of an SQL outbox, the last position as a number, for each shard and key. The
SDK's continuation tokens would be shorter, but those of a feed that was started at a point in time cannot be
reused in azure-cosmos 4.17.1 (https://github.com/Azure/azure-sdk-for-python/issues/43018), and they have no room
for a partition key that failed while others succeeded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from relay.errors import ServiceError, UsageError
from relay.events import Document
from relay.place import Place

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReplayIdentity:
    """What distinguishes one replay from another; a state file belongs to one replay.

    `started` (whole seconds since 1970) and `run` are set when the replay starts, and kept when it resumes. `ids`,
    `shard` and `cursor` are of a replay from an SQL outbox, where they are given.
    """

    since: int
    until: int
    partition_key: str | None
    action: str | None
    as_new: bool
    event_type: str
    container: str
    topic: str
    run: str
    started: int
    source: str = "cosmos"
    ids: list[str] = field(default_factory=list)
    shard: int | None = None
    cursor: str | None = None

    def differences(self, other: ReplayIdentity) -> list[str]:
        """The names of the fields that differ, except `run` and `started`."""
        mine, others = asdict(self), asdict(other)
        return [name for name in mine if name not in ("run", "started") and mine[name] != others[name]]


@dataclass(frozen=True, slots=True)
class Invalid:
    """A document that cannot be published, and why."""

    id: str
    partition_key: str
    reason: str
    detail: str

    def data(self) -> dict[str, str]:
        """For the state file and for `--json`."""
        return {
            "id": self.id,
            "partitionKey": self.partition_key,
            "reason": self.reason,
            "detail": self.detail,
        }


@dataclass(slots=True)
class _Place:
    lsn: int
    ids: set[str]

    def covers(self, lsn: int, identifier: str) -> bool:
        return lsn < self.lsn or (lsn == self.lsn and identifier in self.ids)


@dataclass(slots=True)
class ReplayState:
    """The progress of one replay, in memory only if there is no file.

    Attributes:
        identity: The replay.
        published: Events accepted so far, in all runs.
        invalid: Documents that cannot be published, in all runs.
        finished: The replay is complete.
    """

    identity: ReplayIdentity
    file: Path | None
    published: int = 0
    invalid: dict[tuple[str, str], Invalid] = field(default_factory=dict)
    finished: bool = False
    _places: dict[str, _Place] = field(default_factory=dict)

    @classmethod
    def begin(cls, identity: ReplayIdentity, file: Path | None) -> ReplayState:
        """Resume the replay from its file, or start it, with a new file if one is named.

        Raises:
            UsageError: The file belongs to another replay, or is not a state file.
            ServiceError: The file cannot be read or written.
        """
        if file is None:
            return cls(identity, None)
        try:
            if file.exists():
                return cls._load(identity, file)
            state = cls(identity, file)
            state._create()
        except OSError as error:
            raise ServiceError(f"the state file cannot be read or written: {error}") from error
        return state

    def covers(self, document: Document) -> bool:
        """Whether an earlier run has handled this document.

        Raises:
            ServiceError: There is a state file, but the change feed has no `_lsn`.
        """
        if self.file is None:
            return False
        found = _place_of(document)
        if found is None:
            raise ServiceError(
                "the change feed of this account has no _lsn, so progress cannot be stored: run without --state"
            )
        key, number = found
        place = self._places.get(key)
        return place is not None and place.covers(number, document["id"])

    def advance(
        self, handled: Mapping[str, Sequence[Mapping[str, Any]]], published: int, invalid: Iterable[Invalid]
    ) -> None:
        """Store a chunk that was sent.

        Args:
            handled: The documents accepted or refused, in commit order, by partition key.
            published: How many were accepted.
            invalid: Those that cannot be published.

        Raises:
            ServiceError: The file cannot be written.
        """
        new = [each for each in invalid if (each.partition_key, each.id) not in self.invalid]
        self._note(published, new)
        if self.file is None:
            return
        places = {}
        for documents in handled.values():
            last = _place_of(documents[-1]) if documents else None
            if last is not None:
                ids = [item["id"] for item in documents if _place_of(item) == last]
                places[last[0]] = {"lsn": last[1], "ids": ids}
        self._reach(places)
        self._append({"published": published, "places": places, "invalid": [each.data() for each in new]})

    def finish(self) -> None:
        """Store that the replay is complete."""
        self.finished = True
        if self.file is not None:
            self._append({"finished": True})

    def _note(self, published: int, invalid: Iterable[Invalid]) -> None:
        self.published += published
        self.invalid |= {(each.partition_key, each.id): each for each in invalid}

    def _reach(self, places: Mapping[str, Mapping[str, Any]]) -> None:
        for key, reached in places.items():
            place = self._places.get(key)
            if place is None or place.lsn != reached["lsn"]:
                self._places[key] = _Place(reached["lsn"], set(reached["ids"]))
            else:
                place.ids |= set(reached["ids"])

    def _create(self) -> None:
        assert self.file is not None
        fresh = self.file.with_name(self.file.name + ".new")
        header = {"replay": _VERSION, **asdict(self.identity)}
        _write(fresh, "w", json.dumps(header) + "\n")
        os.replace(fresh, self.file)

    def _append(self, line: Mapping[str, Any]) -> None:
        assert self.file is not None
        try:
            _write(self.file, "a", json.dumps(line) + "\n")
        except OSError as error:
            raise ServiceError(f"the state file cannot be written: {error}") from error

    @classmethod
    def _load(cls, identity: ReplayIdentity, file: Path) -> ReplayState:
        raw = file.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        try:
            header, *lines = [json.loads(line) for line in whole.splitlines()]
            if header.pop("replay") != _VERSION:
                raise ValueError("another version")
            state = cls(ReplayIdentity(**header), file)
            for line in lines:
                state._replay_line(line)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{file} is not the state file of a replay: name another, or delete it") from error
        if different := identity.differences(state.identity):
            raise UsageError(
                f"{file} belongs to another replay, which differs in {', '.join(different)}: name another file"
            )
        if len(whole) < len(raw):  # the process ended while it wrote a line: that chunk is sent again
            os.truncate(file, len(whole))
        return state

    def _replay_line(self, line: Mapping[str, Any]) -> None:
        if line.get("finished"):
            self.finished = True
            return
        self._note(
            line["published"],
            [
                Invalid(each["id"], each["partitionKey"], each["reason"], each["detail"])
                for each in line["invalid"]
            ],
        )
        self._reach(line["places"])


def _place_of(document: Document) -> tuple[str, int] | None:
    """A key, and the document's place among those of the key; None where the source does not say."""
    place, key = Place.of(document), str(document.get("partitionKey"))
    number = place.number
    if number is None:
        return None
    return key if place.shard is None else f"{place.shard}/{key}", number


def _write(file: Path, mode: str, text: str) -> None:
    with file.open(mode, encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
