"""Changes of a stack's events: one for each stage that an event reaches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from outbox_relay.command_line import as_json, printable
from outbox_relay.operator.console.history import NO_START, started_at, took_s, written_moment
from outbox_relay.operator.console.model import earliest

# Maximum number of events remembered. The stream has only the latest ones.
_REMEMBERED = 10_000

ENDED = frozenset({"accepted", "quarantined", "parked", "discarded", "expired"})
"""With one of these, the relay is done with an event."""

_WORDS = {"delivered": "delivered from", "dead-lettered": "dead-lettered at"}


@dataclass(frozen=True, slots=True)
class Change:
    """A stage that an event has reached.

    Attributes:
        id, partition_key, action, sequence: The event's; None if unknown.
        what: `committed`, `accepted`, `quarantined`, `parked`, `discarded`, `expired`, `at` (a subscription),
            `delivered`, or `dead-lettered`.
        at: Time in seconds since 1970; None if unknown.
        after_s: Seconds since its commit, as the console counts them; None if that is not known well enough.
        subscription: Where, from `at` on.
        reason: Why, of an event that was set aside or dead-lettered.
        not_measured: Why `after_s` is None, of an event that was accepted.
    """

    id: str
    partition_key: str
    action: str | None
    sequence: int | None
    what: str
    at: float | None
    after_s: float | None = None
    subscription: str | None = None
    reason: str | None = None
    not_measured: str | None = None

    def as_line(self, stream: str = "", *, of_queue: bool = False) -> str:
        """Return one line for a person, in local time.

        Args:
            stream: The words for its stream, where there are several.
            of_queue: Whether the stream's destination is a queue, which has no subscriptions.
        """
        at = "-" if self.at is None else datetime.fromtimestamp(self.at).strftime("%H:%M:%S.%f")[:-3]
        number = "" if self.sequence is None else f" #{self.sequence}"
        where = (
            "" if self.subscription is None else f" {'queue' if of_queue else 'subscription'} {self.subscription}"
        )
        words = _WORDS.get(self.what, self.what)
        known = self.after_s is not None and self.what != "committed"
        after = f", after {_span(self.after_s or 0.0)}" if known else ""
        if self.not_measured is not None:
            after = f", not measured: {self.not_measured}"
        why = "" if self.reason is None else f": {self.reason}"
        of = f"  {stream}" if stream else ""
        event = f"{self.partition_key}{number}  {self.action or '-'}"
        return printable(f"{at:<12}{of}  {event}  {words}{where}{why}{after}  {self.id}")

    def as_json(self, stream: str | None = None, *, earlier: bool = False) -> str:
        """Return the same as one JSON object, with the time in RFC 3339 and the latency in milliseconds.

        Args:
            stream: The name of its stream; None for an object without it.
            earlier: Whether it happened before anybody watched.
        """
        at = None if self.at is None else datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return as_json(
            {
                **({} if stream is None else {"stream": stream}),
                "id": self.id,
                "partitionKey": self.partition_key,
                "action": self.action,
                "sequence": self.sequence,
                "what": self.what,
                "subscription": self.subscription,
                "reason": self.reason,
                "at": at,
                "latencyMs": None if self.after_s is None else round(self.after_s * 1000, 1),
                "notMeasured": self.not_measured,
                "earlier": earlier,
            }
        )


class Changes:
    """Finds new events of a stream, each as `outbox_relay.operator.console.model.Tracked` in JSON."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, set[tuple[str, str | None]]] = OrderedDict()

    def of(self, tracked: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the changes since this event came last, in the order in which they happened."""
        seen = self._seen.pop(tracked["id"], set())
        self._seen[tracked["id"]] = seen
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        for change in _all(tracked):
            name = (change.what, change.subscription)
            if name not in seen:
                seen.add(name)
                yield change


def staleness(known: Mapping[str, Any]) -> str:
    """Return a line that says whether further events are seen, given the stream's message `known`."""
    if not known["stale"]:
        return "The events are known again."
    since = "yet" if known["at"] is None else f"since {datetime.fromtimestamp(known['at']):%H:%M:%S}"
    why = "; ".join(" ".join(f"{each['what']}: {each['text']}".split()) for each in known["problems"])
    return printable(f"No further events are known {since}{f' ({why})' if why else ''}.")


def _all(tracked: Mapping[str, Any]) -> Iterator[Change]:
    """Yield every known change of the event."""
    event: Mapping[str, Any] = tracked["event"] or {}
    record: Mapping[str, Any] = tracked["quarantined"] or {}
    removed: Mapping[str, Any] = tracked["removed"] or {}
    by_operator = bool(removed) or any(each["again"] for each in tracked["deliveries"])
    committed_at: float | None = event.get("committed_at")
    created_at: str | None = event.get("created_at")

    def change(what: str, at: float | None, subscription: str | None = None, reason: str | None = None) -> Change:
        return Change(
            tracked["id"],
            event.get("partition_key") or record.get("partition_key") or "-",
            event.get("action"),
            event.get("sequence"),
            what,
            at,
            # The time of an operator is none of the relay's.
            None if by_operator else took_s(committed_at, created_at, at),
            subscription,
            reason,
        )

    if event:
        start = started_at(committed_at, created_at)
        yield change("committed", committed_at if start is None else start)
    accepted = [each["accepted_at"] for each in tracked["deliveries"] if each["accepted_at"] is not None]
    if tracked["stage"] == "published" or accepted:
        # The topic may have it before the relay has stored that it is done.
        found = change("accepted", earliest(*accepted, tracked["published_at"]))
        yield found if found.after_s is not None else replace(found, not_measured=_why_not_measured(tracked))
    elif tracked["stage"] == "discarded":
        yield change("discarded", written_moment(removed.get("at")), reason=removed.get("why") or None)
    elif tracked["stage"] == "expired":
        yield replace(change("expired", event.get("expires_at")), after_s=None)
    elif tracked["stage"] != "committed":
        yield change(tracked["stage"], written_moment(record.get("quarantined_at")), reason=record.get("reason"))
    for delivery in tracked["deliveries"]:
        where = delivery["subscription"]
        yield change("at", delivery["accepted_at"], where)
        if delivery["arrival"] != "waiting":
            yield change(delivery["arrival"], delivery["at"], where, delivery["reason"])


def _why_not_measured(tracked: Mapping[str, Any]) -> str | None:
    """Return why there is no latency of an event that was accepted."""
    if tracked["not_measured"] is not None:
        return str(tracked["not_measured"])
    event = tracked["event"]
    if event is None or tracked["removed"] is not None:
        return None
    # The console says it only of an event that the relay is known to have passed.
    return NO_START if started_at(event["committed_at"], event["created_at"]) is None else None


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
