"""How far a replay has come, in a file: a line for each chunk, appended after Service Bus has accepted it.

What is kept is the place in each partition key's history that is dealt with, by the change feed's `_lsn`, and the
ids at that place, as one transaction has one `_lsn` for all its documents. The SDK's own continuation tokens
would be shorter, but those of a feed started at a point in time cannot be used again in azure-cosmos 4.17.1
(https://github.com/Azure/azure-sdk-for-python/issues/43018), and they could not tell of a partition key that
failed while others went on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from relay.errors import ServiceError, UsageError
from relay.events import Document

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReplayIdentity:
    """What makes two replays the same one; a state file belongs to one of them.

    `started` (whole seconds since 1970) and `run` are decided when the replay is begun, and kept.
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

    def differences(self, other: ReplayIdentity) -> list[str]:
        """The names of what differs, `run` and `started` aside."""
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
    """The progress of one replay; in memory alone where there is no file.

    Attributes:
        identity: Which replay.
        published: Events accepted so far, in all its runs.
        invalid: Documents that cannot be published, found in all its runs.
        finished: It came to its end with nothing left undone.
    """

    identity: ReplayIdentity
    file: Path | None
    published: int = 0
    invalid: dict[tuple[str, str], Invalid] = field(default_factory=dict)
    finished: bool = False
    _places: dict[str, _Place] = field(default_factory=dict)

    @classmethod
    def begin(cls, identity: ReplayIdentity, file: Path | None) -> ReplayState:
        """Take up the replay where its file left it, or begin it, with a file if one is named.

        Raises:
            UsageError: The file belongs to another replay, or is no state file.
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
        """Whether this document was dealt with in an earlier run.

        Raises:
            ServiceError: There is a state file, but the change feed does not tell places.
        """
        if self.file is None:
            return False
        lsn = document.get("_lsn")
        if not isinstance(lsn, int):
            raise ServiceError(
                "this account's change feed gives no _lsn, so progress cannot be kept: run without --state"
            )
        place = self._places.get(str(document.get("partitionKey")))
        return place is not None and place.covers(lsn, document["id"])

    def advance(
        self, dealt_with: Mapping[str, Sequence[Mapping[str, Any]]], published: int, invalid: Iterable[Invalid]
    ) -> None:
        """Note a chunk, after its acceptance.

        Args:
            dealt_with: By partition key, the documents accepted or refused, in commit order.
            published: How many were accepted.
            invalid: Those that cannot be published.

        Raises:
            ServiceError: The file cannot be written.
        """
        new = [each for each in invalid if (each.partition_key, each.id) not in self.invalid]
        self._note(published, new)
        if self.file is None:
            return
        places = {
            key: {
                "lsn": documents[-1]["_lsn"],
                "ids": [item["id"] for item in documents if item["_lsn"] == documents[-1]["_lsn"]],
            }
            for key, documents in dealt_with.items()
            if documents
        }
        self._reach(places)
        self._append({"published": published, "places": places, "invalid": [each.data() for each in new]})

    def finish(self) -> None:
        """Note that nothing is left undone."""
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
            raise UsageError(f"{file} is no state file of a replay: name another file, or remove it") from error
        if different := identity.differences(state.identity):
            raise UsageError(
                f"{file} belongs to another replay: it differs in {', '.join(different)}. Name another file"
            )
        if len(whole) < len(raw):  # a line cut short by the end of the process: its chunk is sent again
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


def _write(file: Path, mode: str, text: str) -> None:
    with file.open(mode, encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
