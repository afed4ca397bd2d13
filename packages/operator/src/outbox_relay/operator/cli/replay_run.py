"""One run of a replay: the events it publishes and counts, and its progress in the state file.

The file has a line for each chunk, appended after Service Bus has accepted it: for each partition key the last
`_lsn` that was handled, and the ids with that `_lsn`, as all documents of a transaction share one; of an SQL
outbox, the last position as a number, for each shard and key. The SDK's continuation tokens would be shorter, but
those of a feed that was started at a point in time cannot be reused in azure-cosmos 4.17.1
(https://github.com/Azure/azure-sdk-for-python/issues/43018), and they have no room for a partition key that failed
while others succeeded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from outbox_relay.operator.cli.quarantine_admin import Discarded
from outbox_relay.operator.cli.sender import OrderedSender, Rehearsal
from outbox_relay.operator.cli.terminal import Terminal
from outbox_relay.operator.outcomes import Removed
from relay.backends.outbox import Outbox, Range, Reading
from relay.core.documents import SourceDocument
from relay.core.errors import ServiceError, UsageError
from relay.core.events import MAX_KEY_LENGTH, Event, Rejected
from relay.quarantine.record import NO_PARTITION_KEY

_VERSION = 1
_DIGEST_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class ReplayIdentity:
    """The identity of a replay; a state file belongs to one replay.

    `started` (whole seconds since 1970) and `run` are set when the replay starts, and kept when it resumes.
    """

    chosen: Range
    as_new: bool
    event_type: str
    container: str
    topic: str
    run: str
    started: int
    source: str = "cosmos"

    def header(self) -> dict[str, Any]:
        """Return the first line of the state file."""
        members = asdict(self)
        chosen = members.pop("chosen")
        return {**chosen, "ids": list(chosen["ids"]), **members}

    @classmethod
    def from_header(cls, members: Mapping[str, Any]) -> ReplayIdentity:
        """Read the identity from the first line of a state file.

        Raises TypeError: a name is missing, or unknown.
        """
        names = {each.name for each in fields(Range)}
        chosen = Range(**{name: value for name, value in members.items() if name in names})
        return cls(chosen, **{name: value for name, value in members.items() if name not in names})

    def differences(self, other: ReplayIdentity) -> list[str]:
        """Return the names of the members that differ, except `run` and `started`."""
        mine, others = self.header(), other.header()
        return [name for name in mine if name not in ("run", "started") and mine[name] != others[name]]


@dataclass(frozen=True, slots=True)
class Invalid:
    """A document that cannot be published, and why."""

    id: str
    partition_key: str
    reason: str
    detail: str

    @classmethod
    def of(cls, rejected: Rejected) -> Invalid:
        key = str(rejected.document.fields.get("partitionKey"))
        return cls(rejected.id, key, str(rejected.reason), rejected.detail)

    def data(self) -> dict[str, str]:
        return {
            "id": self.id,
            "partitionKey": self.partition_key,
            "reason": self.reason,
            "detail": self.detail,
        }


@dataclass(slots=True)
class ReplayState:
    """The progress of one replay, in memory only if there is no file.

    Attributes:
        published: Events accepted so far, in all runs.
        invalid: Documents that cannot be published, in all runs.
        finished: The replay is complete.
    """

    identity: ReplayIdentity
    file: Path | None
    published: int = 0
    invalid: dict[tuple[str, str], Invalid] = field(default_factory=dict)
    finished: bool = False
    _reached: dict[str, tuple[int, set[str]]] = field(default_factory=dict)

    @classmethod
    def begin(cls, identity: ReplayIdentity, file: Path | None) -> ReplayState:
        """Resume the replay from its file, or start it, with a new file if one is named.

        Raises:
            UsageError: The file belongs to another replay, or is not a state file.
            ServiceError: The file cannot be read or written.
        """
        state = cls(identity, file)
        if file is None:
            return state
        try:
            if file.exists():
                return cls._load(identity, file)
            fresh = file.with_name(file.name + ".new")
            _write(fresh, "w", {"replay": _VERSION, **identity.header()})
            os.replace(fresh, file)
        except OSError as error:
            raise ServiceError(f"the state file cannot be read or written: {error}") from error
        return state

    def covers(self, document: SourceDocument) -> bool:
        """Return True if an earlier run has handled this document.

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
        key, lsn = found
        reached, ids = self._reached.get(key, (-1, set()))
        # An id that is no text may not be hashed, and has never been handled.
        identifier = document.fields.get("id")
        return lsn < reached or (lsn == reached and isinstance(identifier, str) and identifier in ids)

    def advance(
        self, handled: Mapping[str, Sequence[SourceDocument]], published: int, invalid: Iterable[Invalid]
    ) -> None:
        """Store a chunk that was sent. Raises ServiceError: the file cannot be written.

        Args:
            handled: The documents accepted or refused, in commit order, by partition key.
            published: Number of events accepted.
            invalid: Those that cannot be published.
        """
        new = [each for each in invalid if (each.partition_key, each.id) not in self.invalid]
        places = {}
        for documents in handled.values() if self.file is not None else ():
            last = _place_of(documents[-1]) if documents else None
            if last is not None:
                ids = [item.fields["id"] for item in documents if _place_of(item) == last]
                places[last[0]] = {"lsn": last[1], "ids": ids}
        self._note({"published": published, "places": places, "invalid": [each.data() for each in new]})

    def finish(self) -> None:
        self._note({"finished": True})

    def _note(self, line: Mapping[str, Any]) -> None:
        self._apply(line)
        if self.file is not None:
            try:
                _write(self.file, "a", line)
            except OSError as error:
                raise ServiceError(f"the state file cannot be written: {error}") from error

    def _apply(self, line: Mapping[str, Any]) -> None:
        """Take a line of the file into account."""
        if line.get("finished"):
            self.finished = True
            return
        self.published += line["published"]
        for each in line["invalid"]:
            invalid = Invalid(each["id"], each["partitionKey"], each["reason"], each["detail"])
            self.invalid[invalid.partition_key, invalid.id] = invalid
        for key, place in line["places"].items():
            reached, ids = self._reached.get(key, (-1, set()))
            earlier = ids if reached == place["lsn"] else set()
            self._reached[key] = place["lsn"], earlier | set(place["ids"])

    @classmethod
    def _load(cls, identity: ReplayIdentity, file: Path) -> ReplayState:
        raw = file.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        try:
            header, *lines = [json.loads(line) for line in whole.splitlines()]
            if header.pop("replay") != _VERSION:
                raise ValueError("another version")
            state = cls(ReplayIdentity.from_header(header), file)
            for line in lines:
                state._apply(line)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{file} is not the state file of a replay: name another, or delete it") from error
        if different := identity.differences(state.identity):
            raise UsageError(
                f"{file} belongs to another replay, which differs in {', '.join(different)}: name another file"
            )
        if len(whole) < len(raw):  # the process ended while it wrote a line: that chunk is sent again
            os.truncate(file, len(whole))
        return state


def _place_of(document: SourceDocument) -> tuple[str, int] | None:
    """Return a key, and the document's place among those of the key, or None if the source does not say."""
    place, key = document.place, str(document.fields.get("partitionKey"))
    number = place.number
    if number is None:
        return None
    return key if place.shard is None else f"{place.shard}/{key}", number


def _write(file: Path, mode: str, line: Mapping[str, Any]) -> None:
    with file.open(mode, encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


@dataclass(slots=True)
class ReplayCounts:
    """The counts of one run.

    Attributes:
        matched: Events of the range that were read.
        skipped: Those that an earlier run has handled.
        unread: Events of the range that a query counts, but that the change feed did not return.
        ahead: Events left to the relay, which has not passed them yet, by partition key.
        parked: Events left to a release, by parked partition key.
        discarded: Events left because an operator has discarded them, each with its discard.
        keys: Events published, or to be published by a dry run, by partition key.
        actions: The same events, by action.
    """

    matched: int = 0
    skipped: int = 0
    unread: int = 0
    ahead: Counter[str] = field(default_factory=Counter)
    parked: Counter[str] = field(default_factory=Counter)
    discarded: list[Removed] = field(default_factory=list)
    keys: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        """Events of the range that this run left alone, as they would have overtaken others."""
        return self.ahead.total() + self.parked.total()


@dataclass(slots=True)
class Replay:
    """One run of a replay.

    Attributes:
        reading: The events of the outbox to publish.
        sender: Publishes them; or a rehearsal, which makes this a dry run.
        parked: The parked keys; None if nothing is left to the relay or to a release (--force).
        discarded: The events that operators have discarded; empty if these are published, too (--force).
        state: The events published before.
        counts: The counts of this run so far.
    """

    outbox: Outbox
    reading: Reading
    sender: OrderedSender | Rehearsal
    parked: Set[str] | None
    discarded: Mapping[Discarded, Removed]
    state: ReplayState
    counts: ReplayCounts = field(default_factory=ReplayCounts)

    async def run(self, terminal: Terminal) -> None:
        """Publish the events that are not done yet, or count them. Raises ServiceError."""
        sender = self.sender if isinstance(self.sender, OrderedSender) else None
        progress = terminal.progress(
            "events read" if sender is None else "events done", await self.reading.count()
        )
        async with aclosing(self.reading.pages()) as pages:
            async for documents in pages:
                await self._take(documents)
                progress.update(self.counts.matched)
                if sender is not None and sender.gave_up:
                    break
        self.counts.unread = self.reading.unread
        if sender is None or not sender.gave_up:
            progress.finish(self.counts.matched)
        if sender is not None and not (sender.failures or self.counts.unread or self.counts.left):
            self.state.finish()

    async def _take(self, documents: list[SourceDocument]) -> None:
        self.counts.matched += len(documents)
        waiting = [document for document in documents if not self.state.covers(document)]
        self.counts.skipped += len(documents) - len(waiting)
        kept = [document for document in waiting if not self._is_discarded(document)]
        ready = [self.outbox.event_of(document) for document in kept if not await self._is_left(document)]
        events = [event for event in ready if isinstance(event, Event)]
        invalid = [Invalid.of(event) for event in ready if not isinstance(event, Event)]
        invalid += [Invalid(each.id, "", each.reason, each.detail) for each in self.reading.gone]
        self.reading.gone = []
        if self.state.identity.as_new:
            events = [event._replace(id=new_id(event.id, self.state.identity.run)) for event in events]
        sent = await self.sender.send(events)
        invalid += map(Invalid.of, sent.rejected)
        self.counts.keys.update(event.partition_key for event in sent.accepted)
        self.counts.actions.update(event.action for event in sent.accepted)
        if isinstance(self.sender, Rehearsal):
            self.state.invalid |= {(each.partition_key, each.id): each for each in invalid}
            return
        dealt_with = {key: [event.document for event in through] for key, through in sent.through.items()}
        self.state.advance(dealt_with, len(sent.accepted), invalid)

    def _is_discarded(self, document: SourceDocument) -> bool:
        """Return True for an event that an operator has discarded: nobody but an operator publishes it."""
        key, identifier = document.fields.get("partitionKey"), document.fields.get("id")
        if not self.discarded or not isinstance(identifier, str):
            return False
        name = (key if isinstance(key, str) else NO_PARTITION_KEY), identifier
        found = self.discarded.get((*name, document.place.in_feed)) or self.discarded.get((*name, None))
        if found is None:
            return False
        self.counts.discarded.append(found)
        return True

    async def _is_left(self, document: SourceDocument) -> bool:
        """Return True for a document that is left to a release or to the relay.

        The relay has not, or may not have, passed it.
        """
        if self.parked is None:
            return False
        key = document.fields.get("partitionKey")
        # Without a key that an event can have, it is no event, and overtakes none.
        if not isinstance(key, str):
            return False
        if key in self.parked:
            self.counts.parked[key] += 1
            return True
        if await self.outbox.passed(document):
            return False
        self.counts.ahead[key] += 1
        return True


def new_id(identifier: str, run: str) -> str:
    """Return the message id under which a run of a replay publishes an event as new; at most 128 characters.

    A longer id is cut, and a digest of it distinguishes it from others with the same beginning.
    """
    suffix = f":replay:{run}"
    # Service Bus counts UTF-16 code units, so a character beyond the basic plane counts twice.
    room = MAX_KEY_LENGTH - len(suffix)
    units = identifier.encode("utf-16-le", errors="surrogatepass")
    if len(units) > 2 * room:
        digest = hashlib.sha256(units).hexdigest()[:_DIGEST_CHARACTERS]
        kept = units[: 2 * (room - len(digest) - 1)].decode("utf-16-le", errors="ignore")
        identifier = f"{kept}~{digest}"
    return identifier + suffix
