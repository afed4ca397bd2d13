"""The journal of a run: what happened to its events, one JSON object a line, in the order in which it happened."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, get_args, get_type_hints

Position = tuple[int, ...]
"""A place in the source: the number of a commit (or a position that a feed has given), and the order within it.

A shorter one lies behind every position that begins with it: a lease at (7,) has passed the whole commit 7.
"""

Range = tuple[str, str]
"""Effective partition keys: the first, and the first beyond."""

_PIECE = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class JournalError(Exception):
    """A line is no entry of a journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened.

    Attributes:
        at: Seconds, on one clock for the whole journal.
        by: The process that did it, or, if it was killed, frozen or resumed, the one that it befell. Empty where
            nobody can say.
    """

    kind: ClassVar[str]
    at: float
    by: str = ""

    def to_line(self) -> str:
        """Return the entry as a line, without its end. Values that are None are left out."""
        values = ((name, getattr(self, name)) for name in _NAMES[type(self)])
        present = {name: value for name, value in values if value is not None}
        return json.dumps({"kind": self.kind, **present}, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfEvent(Entry):
    """An entry about one event: its partition key and its id."""

    key: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfMessage(OfEvent):
    """An entry of the topic about one message: `digest` of what it carries, and the topic's sequence number."""

    digest: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfLease(Entry):
    """An entry about a lease, or the claim of a shard.

    Attributes:
        lease: Its name.
        owner: The process that has it, or had it.
        epoch: How often its owner has changed; None where nobody counts.
        covers: The effective partition keys that it covers. If None, the events with its name as `place`.
    """

    lease: str
    owner: str
    epoch: int | None = None
    covers: Range | None = None

    def has(self, place: str) -> bool:
        """Return True if the lease covers the events with this `place`."""
        return self.lease == place if self.covers is None else self.covers[0] <= place < self.covers[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(OfEvent):
    """An event was committed. The events of a key are in the order in which subscribers must get them.

    Attributes:
        position: Its place in the source; None if the source never gave it one.
        digest: See `digest_of`.
        place: Which lease covers it: the effective partition key, or the name of the shard.
        sound: Whether it can be published. Otherwise it has to be set aside.
    """

    kind = "committed"
    position: Position | None = None
    digest: str
    place: str = ""
    sound: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(OfLease):
    """A page was delivered to the owner: what lies behind `after`, up to `upto`."""

    kind = "read"
    after: Position
    upto: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(OfMessage):
    """The topic took a message."""

    kind = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(OfMessage):
    """The topic dropped a message, because it has had its id. `number` is 0 if the topic gave it none."""

    kind = "duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside(OfEvent):
    """An event was stored in quarantine for its own sake: poison, or by an order."""

    kind = "set_aside"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked(OfEvent):
    """An event was stored in quarantine because an earlier one of its key is there."""

    kind = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered(OfEvent):
    """An operator began to order that an event is set aside."""

    kind = "ordered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(OfEvent):
    """An event was published from quarantine, and its record was removed."""

    kind = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(OfEvent):
    """An operator began to remove an event's record without publishing it."""

    kind = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(OfLease):
    """A process became the owner."""

    kind = "claimed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(OfLease):
    """A process stopped being the owner: it gave the lease back, or another one took it."""

    kind = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed(OfLease):
    """The position of a lease, or the cursor of a claim, was written."""

    kind = "checkpointed"
    position: Position

    def passed(self, event: Committed) -> bool:
        """Return True if this is not before an event."""
        return event.position is not None and self.position >= event.position[: len(self.position)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled(OfEvent):
    """A message had its effect at a consumer. A delivery without an effect, such as a repeated one, has no entry.

    Attributes:
        consumer: Whoever is to have each effect once, such as a subscription.
        digest: Of what was delivered; None if it was not kept.
        number: The topic's sequence number; None if it was not kept.
    """

    kind = "handled"
    consumer: str
    digest: str | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(Entry):
    """A process was killed: its memory is gone, and what it has sent may still arrive."""

    kind = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen(Entry):
    """A process was stopped at whatever it was doing."""

    kind = "frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Entry):
    """A frozen process continues."""

    kind = "resumed"


_CLASSES: tuple[type[Entry], ...] = (
    *(Committed, Read, Accepted, Duplicate, SetAside, Parked, Ordered, Released, Discarded),
    *(Claimed, Lost, Checkpointed, Handled, Killed, Frozen, Resumed),
)
KINDS = {each.kind: each for each in _CLASSES}
"""The class of each kind, by its name in the journal."""

_NAMES = {each: tuple(field.name for field in fields(each)) for each in _CLASSES}
_HINTS = {each: {name: get_type_hints(each)[name] for name in _NAMES[each]} for each in _CLASSES}


def digest_of(data: Any, subject: str | None = None, sequence: object = None) -> str:
    """Return a short digest of a message's body as a JSON value, its subject and its sequence property.

    It differs for 1 and 1.0, and for -0.0 and 0.0, which Python's equality takes for the same.
    """
    text = json.dumps([data, subject, sequence], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse(lines: Iterable[str]) -> Iterator[Entry]:
    """Parse the entries of a journal's lines. Raises JournalError, which names the line."""
    for number, line in enumerate(lines, 1):
        try:
            yield _entry(line)
        except JournalError as error:
            raise JournalError(f"line {number}: {error}") from None


def _entry(line: str) -> Entry:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise JournalError(f"no JSON: {error}. The journal may have been cut off there.") from None
    if not isinstance(values, dict):
        raise JournalError("an entry is a JSON object")
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise JournalError(f"unknown kind {kind!r}; the kinds are {', '.join(KINDS)}")
    of = KINDS[kind]
    if unknown := values.keys() - _HINTS[of].keys():
        raise JournalError(f"{kind} has no {', '.join(sorted(unknown))}")
    checked = {name: _checked(kind, name, value, _HINTS[of][name]) for name, value in values.items()}
    try:
        return of(**checked)
    except TypeError as error:
        raise JournalError(f"{kind} is incomplete: {str(error).partition(' ')[2]}") from None


def _checked(kind: str, name: str, value: Any, hint: Any) -> Any:
    """Return the value in the type of its field. Raises JournalError."""
    if isinstance(hint, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if hint in (Position, Range):
        return _pieces(kind, name, value, hint)
    taken: tuple[type, ...] = (int, float) if hint is float else (hint,)
    if not isinstance(value, taken) or (isinstance(value, bool) and hint is not bool):
        raise JournalError(f"the {name} of {kind} is {value!r}, and has to be {_PIECE[hint]}")
    return value


def _pieces(kind: str, name: str, value: Any, hint: Any) -> tuple[Any, ...]:
    piece = get_args(hint)[0]
    is_right: Callable[[Any], bool] = lambda each: isinstance(each, piece) and not isinstance(each, bool)  # noqa: E731
    length = 2 if hint == Range else None
    if (
        not isinstance(value, list)
        or not value
        or not all(map(is_right, value))
        or length not in (None, len(value))
    ):
        what = "two texts" if hint == Range else "a list of whole numbers"
        raise JournalError(f"the {name} of {kind} is {value!r}, and has to be {what}")
    return tuple(value)


def load(path: Path) -> list[Entry]:
    """Load the entries of a journal. Raises JournalError, which names the line, and OSError."""
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return list(parse(lines))
    with path.open(encoding="utf-8") as lines:
        return list(parse(lines))


def save(path: Path, journal: Iterable[Entry]) -> None:
    """Write a journal; an existing file is replaced."""
    text = "".join(f"{entry.to_line()}\n" for entry in journal)
    if path.suffix == ".gz":
        # Without a time, the same journal is the same file.
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text, encoding="utf-8")
