"""How the page writes numbers, times, texts of others, and commands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import quote

from relay.commands import escaped, line, positional, release_key

UNKNOWN = "\N{EN DASH}"
_THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"


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


def plural(number: int, one: str, many: str) -> str:
    """A number with the word for one or for many."""
    return f"{count(number)} {one if number == 1 else many}"


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
