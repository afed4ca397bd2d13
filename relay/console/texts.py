"""How the page writes numbers, times, texts of others, commands, and the state of the relay in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import quote

from relay.commands import escaped, line, positional, release_key
from relay.console.model import Snapshot
from relay.findings import Level
from relay.reasons import State

UNKNOWN = "\N{EN DASH}"
_THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"

# Events wait for as long as a poll of the outbox and a send take.
_USUAL_LAG_S = 5.0
_SHORT_HEADROOM_S = 3600.0


def count(number: int | None) -> str:
    """50 000 with a narrow space between thousands."""
    return UNKNOWN if number is None else f"{number:,}".replace(",", _THIN_SPACE)


def rate(per_second: float | None) -> str:
    """Events a second, with a decimal below ten."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:.1f}" if 0 < per_second < 9.95 else count(round(per_second))


def span(seconds: float | None) -> str:
    """A span of time in its largest unit, or in two: 35 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 12 d."""
    if seconds is None:
        return UNKNOWN
    seconds = max(seconds, 0.0)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}{_THIN_SPACE}ms" if seconds else f"0{_THIN_SPACE}s"
    if seconds < 59.95:
        return f"{seconds:.1f}{_THIN_SPACE}s" if seconds < 9.95 else f"{seconds:.0f}{_THIN_SPACE}s"
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    whole = round(seconds)
    for (unit, size), (smaller, part) in pairwise(units):
        if whole >= size:
            rest = whole % size // part
            text = f"{whole // size}{_THIN_SPACE}{unit}"
            return f"{text} {rest}{_THIN_SPACE}{smaller}" if rest and whole < 10 * size else text
    return f"{whole}{_THIN_SPACE}s"


def milliseconds(value: float | None) -> str:
    """A latency in milliseconds, as a span."""
    return UNKNOWN if value is None else span(value / 1000)


def clock(at: float | None) -> str:
    """The time of day in UTC, with milliseconds if there are any."""
    if at is None:
        return UNKNOWN
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%H:%M:%S}" + (f".{moment.microsecond // 1000:03}" if moment.microsecond else "")


def date(at: float | None) -> str:
    """The date in UTC."""
    return UNKNOWN if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def iso(at: float) -> str:
    """The moment in ISO 8601, for `<time>`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def written(moment: str | None) -> str:
    """A moment written in ISO 8601, to the second; any other text unchanged."""
    if moment is None:
        return UNKNOWN
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return visible(moment)
    if parsed.tzinfo is not None:
        parsed = parsed.astimezone(UTC)
    return f"{parsed:%Y-%m-%d %H:%M:%S}"


def visible(text: str | None) -> str:
    """A text of others on one line: what cannot be printed, or turns the direction of writing, as its code."""
    if text is None:
        return UNKNOWN
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else escaped(each) for each in text)


def short(text: str | None, most: int = 160) -> str:
    """As `visible`, and no longer than this many characters."""
    shown = visible(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def key_path(partition_key: str) -> str:
    """The address of a key's page."""
    return f"/key?key={quote(partition_key, safe='', errors='replace')}"


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for one outbox; `options` are what each of them takes in addition, such as `--source sql`."""

    options: str = ""

    def of_reason(self, command: str, reason: str) -> str:
        """Release or discard every record of a reason."""
        return line("quarantine", command, *self._words, "--reason", reason)

    def release_record(self, identifier: str) -> str:
        return line("quarantine", "release", *self._words, *positional(identifier))

    def release_key(self, partition_key: str) -> str:
        """Release every record of a key in order, which unparks it."""
        return release_key(partition_key, *self._words)

    @property
    def _words(self) -> list[str]:
        return self.options.split()


@dataclass(frozen=True, slots=True)
class Headline:
    """The state of the whole relay in one sentence; its level asks its reader for nothing, to look, or to act."""

    level: Level
    text: str
    state: State | None = None


def headline(snapshot: Snapshot) -> Headline:
    """The most serious of what a snapshot says."""
    flow = snapshot.flow
    if not snapshot.number:
        return Headline(Level.OK, "The outbox is being read.")
    if flow.headroom_s is not None and flow.headroom_s < _SHORT_HEADROOM_S:
        return Headline(
            Level.ERROR,
            f"The first of {_events(flow.waiting)} that wait is deleted by its time to live in "
            f"{span(flow.headroom_s)}.",
            State.TTL_HEADROOM,
        )
    retried = [each for each in snapshot.partitions if each.retry is not None]
    if retried:
        name, others = visible(retried[0].name), len(retried) - 1
        who = f"Partition {name} and {count(others)} more are" if others else f"Partition {name} is"
        return Headline(Level.ERROR, f"{who} being retried: see the error below.", State.FAILING)
    if snapshot.problems:
        return Headline(
            Level.WARNING, f"Not everything could be read ({visible(snapshot.problems[0].what)}): see below."
        )
    if flow.lag_s > _USUAL_LAG_S:
        text = f"{_events(flow.waiting)} wait, the oldest for {span(flow.lag_s)}."
        return Headline(Level.WARNING, text, State.LAG)
    if aside := _aside(snapshot):
        text = ", ".join(_plural(number, one, many) for _, number, one, many in aside)
        return Headline(Level.WARNING, f"{text}.", aside[0][0])
    if flow.waiting:
        return Headline(Level.OK, f"{_events(flow.waiting)} on the way to the topic.")
    return Headline(Level.OK, "Every committed event has been accepted by the topic.")


def _aside(snapshot: Snapshot) -> list[tuple[State, int, str, str]]:
    dead = sum(each.dead_lettered for each in snapshot.subscriptions)
    counted = (
        (State.QUARANTINE, snapshot.flow.quarantined, "record in quarantine", "records in quarantine"),
        (State.PARKED, snapshot.flow.parked, "parked key", "parked keys"),
        (State.DEAD_LETTERS, dead, "dead-lettered message", "dead-lettered messages"),
    )
    return [each for each in counted if each[1]]


def _events(number: int) -> str:
    return _plural(number, "event", "events")


def _plural(number: int, one: str, many: str) -> str:
    return f"{count(number)} {one if number == 1 else many}"
