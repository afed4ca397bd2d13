"""How the page writes numbers, times, texts of others, and commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import quote

from markupsafe import Markup, escape

from outbox_relay.command_line import printable
from outbox_relay.operator.console.truncation import REASON, both_ends, was_cut
from outbox_relay.operator.reasons import State
from relay.backends.outbox import cut_text
from relay.core.remedy import CHECK, LIST, PLAIN, SCAN, Invocation, Remedy, Sentence, release_key, set_aside_at_end

UNKNOWN = "\N{EN DASH}"
_THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"

_LONG_WORD = 48


def count(number: int | None) -> str:
    """50 000 with a narrow space between thousands."""
    return UNKNOWN if number is None else f"{number:,}".replace(",", _THIN_SPACE)


def rate(per_second: float | None) -> str:
    """Format events a second, with a decimal below ten."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:.1f}" if 0 < per_second < 9.95 else count(round(per_second))


def span(seconds: float | None) -> str:
    """Format a span of time in its largest unit, or in two: 35 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 12 d."""
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
    """Format a latency in milliseconds as a span."""
    return UNKNOWN if value is None else span(value / 1000)


def clock(at: float | None) -> str:
    """Format the time of day in UTC, with milliseconds if there are any."""
    if at is None:
        return UNKNOWN
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%H:%M:%S}" + (f".{moment.microsecond // 1000:03}" if moment.microsecond else "")


def date(at: float | None) -> str:
    """Format the date in UTC."""
    return UNKNOWN if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def iso(at: float) -> str:
    """Format the moment in ISO 8601, for `<time>`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def written(moment: str | None) -> str:
    """Format a moment written in ISO 8601, to the second; any other text stays unchanged."""
    if moment is None:
        return UNKNOWN
    try:
        parsed = datetime.fromisoformat(moment)
        if parsed.tzinfo is not None:
            parsed = parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return visible(moment)
    return f"{parsed:%Y-%m-%d %H:%M:%S}"


def visible(text: str | None) -> str:
    """Return a text of others on one line.

    A character that cannot be printed, or turns the direction of writing, is shown as its code.
    """
    return UNKNOWN if text is None else printable(text)


def short(text: str | None, most: int = 160) -> str:
    """Return a text of others on one line as `visible` does, and no longer than this many characters."""
    return cut_text(visible(text), most)


def prose(text: str | None, most: int = 600) -> str:
    """Return sentences of others on one line.

    Long words, such as ids, lose their middle, so that the end stays.
    """
    return both_ends(_short_words(text.split()), most) if text else UNKNOWN


def advice(text: str | None, by: Invocation, most: int = 600) -> str:
    """Return sentences on one line as `prose` does, with whole commands for a reader who starts them so."""
    if not text:
        return UNKNOWN
    return "".join(
        part.render(by)
        if isinstance(part, Remedy)
        else both_ends(_short_words(part.replace("\n", " ").split(" ")), most)
        for part in (text.parts if isinstance(text, Sentence) else [text])
    )


def _short_words(words: Iterable[str]) -> str:
    return " ".join(both_ends(visible(word), _LONG_WORD) for word in words)


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def lines(text: str) -> str:
    """Return a text of several lines, each made printable by `visible`."""
    return "\n".join(visible(line.expandtabs(2)) for line in text.splitlines())


def commands_in(text: str | None) -> list[Remedy]:
    """Return the commands that a sentence has as values."""
    return [part for part in text.parts if isinstance(part, Remedy)] if isinstance(text, Sentence) else []


def set_aside_commands(error: str | None) -> list[Remedy]:
    """Return the commands that an error names for events that block their keys, with whole ids and keys."""
    found = map(set_aside_at_end, (error or "").split("\n"))
    return list(dict.fromkeys(each for each in found if each is not None))


def marked(text: str) -> Markup:
    """Mark up a text of the project's own with its code in backticks."""
    pieces = enumerate(str(escape(text)).split("`"))
    return Markup("".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in pieces))


def key_path(partition_key: str) -> str:
    """Return the address of a key's page."""
    return f"/key?key={quote(partition_key, safe='', errors='replace')}"


def plural(number: int, one: str, many: str) -> str:
    """Return a number with the word for one or for many."""
    return f"{count(number)} {one if number == 1 else many}"


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for one outbox and its destination.

    Attributes:
        by: How the reader of the page starts them, with this outbox and stream.
        is_queue: True if the destination is a queue, whose dead letters have no subscription.
    """

    by: Invocation = PLAIN
    is_queue: bool = False

    def of_reason(self, command: str, reason: str) -> Remedy:
        """Release or discard every record of a reason."""
        return Remedy(f"quarantine {command}", chosen=(("--reason", reason),))

    def release_record(self, identifier: str) -> Remedy:
        return Remedy("quarantine release", (identifier,))

    def release_records(self, identifiers: Sequence[str]) -> Remedy:
        """Release these records, in order of arrival."""
        return Remedy("quarantine release", tuple(identifiers))

    def discard_records(self, identifiers: Sequence[str]) -> Remedy:
        """Discard these records, after asking."""
        return Remedy("quarantine discard", tuple(identifiers))

    def release_key(self, partition_key: str) -> Remedy:
        """Release every record of a key in order, which unparks it."""
        return release_key(partition_key)

    def dead_letters(self, subscription: str, reason: str) -> Iterator[tuple[str, Remedy]]:
        """Yield the actions for a subscription's dead letters with a reason, each with its command."""
        chosen = () if self.is_queue else (("--subscription", subscription),)
        if was_cut(reason, REASON):
            # No dead letter has the reason that is shown.
            yield "list the dead letters of the subscription", Remedy("deadletters list", chosen=chosen)
            return
        for command in ("list", "resubmit", "discard"):
            yield (
                f"{command} the dead letters with this reason",
                Remedy(f"deadletters {command}", chosen=(*chosen, ("--reason", reason))),
            )

    def check(self) -> Remedy:
        return CHECK

    def scan(self) -> Remedy:
        """Find what a host cannot hand over to the relay."""
        return SCAN

    def of_state(self, state: State) -> Sequence[Remedy]:
        """Return the commands that show the events or settings behind a state."""
        match state:
            case State.FAILING | State.UNREAD | State.UNOWNED:
                return [CHECK]
            case State.UNDELIVERED:
                return [SCAN]
            case State.QUARANTINE | State.PARKED:
                return [LIST]
            case State.DEAD_LETTERS:
                return [Remedy("deadletters list")]
            case _:
                return []
