"""The relay's OpenTelemetry instruments, each recorded where the counted fact is established.

`docs/telemetry.md` describes each of them. Only the API is used: without an SDK every call here does nothing.
Where the Functions worker has configured one, the instruments, which are created at import, start to count. No
attribute holds a payload, an id or a key.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakSet

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from relay.core.events import Event, Reason
from relay.telemetry.gauges import Headroom, LeaseAges, ShardAges
from relay.telemetry.stream import attributes, attributes_of

# A metric's series are kept by whoever stores them, one for each combination of attributes, and cost accordingly.
MAX_ACTIONS = 50
MAX_ACTION_LENGTH = 128
OTHER_ACTIONS = "other"

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400

_PartT = TypeVar("_PartT", bound=int | str)

# From an idle system's latency to the ten days that events live by convention.
_LAG_BOUNDARIES = (
    *(0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 15 * _MINUTE),
    *(_HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY),
)
_SEND_BOUNDARIES = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BATCH_BOUNDARIES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

tracer = trace.get_tracer("relay")

_meter = metrics.get_meter("relay")
_received = _meter.create_counter(
    "relay.documents.received", "{document}", "Documents the trigger delivered, in every attempt."
)
_ignored = _meter.create_counter(
    "relay.documents.ignored", "{document}", "Documents of another type than the relayed one, in every attempt."
)
_published = _meter.create_counter("relay.events.published", "{event}", "Events Service Bus accepted.")
_quarantined = _meter.create_counter(
    "relay.events.quarantined", "{event}", "Records written to the quarantine container."
)
_redelivered = _meter.create_counter(
    "relay.events.redelivered", "{event}", "Documents of the relayed type received again by a retried invocation."
)
_ledger_hits = _meter.create_counter(
    "relay.ledger.hits", "{event}", "Events not sent again, as this process knew them to be accepted."
)
_sends = _meter.create_counter("relay.sends", "{send}", "Transfers Service Bus accepted.")
_lag = _meter.create_histogram(
    "relay.lag",
    "s",
    "From an event's _ts to its acceptance by Service Bus.",
    explicit_bucket_boundaries_advisory=_LAG_BOUNDARIES,
)
_send_duration = _meter.create_histogram(
    "relay.send.duration",
    "s",
    "How long an accepted transfer took, the SDK's retries included.",
    explicit_bucket_boundaries_advisory=_SEND_BOUNDARIES,
)
_batch_events = _meter.create_histogram(
    "relay.batch.events",
    "{event}",
    "Events in an accepted transfer.",
    explicit_bucket_boundaries_advisory=_BATCH_BOUNDARIES,
)


# The gauges' values, of every relay of the process. A relay that is no longer in use is no longer reported.
_headrooms: WeakSet[Headroom] = WeakSet()
_shard_ages: WeakSet[ShardAges] = WeakSet()
_lease_ages: WeakSet[LeaseAges] = WeakSet()
# The exporter collects in its own thread.
_observing = threading.Lock()


def observe(headroom: Headroom, shard_ages: ShardAges) -> None:
    """Report these of a relay for as long as something else refers to them."""
    with _observing:
        _headrooms.add(headroom)
        _shard_ages.add(shard_ages)


def observe_leases(lease_ages: LeaseAges) -> None:
    """Report the ages of leases that the timer sees, for as long as they are referenced."""
    with _observing:
        _lease_ages.add(lease_ages)


def _observe_headroom(_options: CallbackOptions) -> Iterable[Observation]:
    with _observing:
        headrooms = list(_headrooms)
    left_s: dict[str | None, float] = {}
    for each in headrooms:
        if (least := each.least()) is not None:
            left_s[each.label] = min(least, left_s.get(each.label, least))
    return [Observation(least, attributes_of(label)) for label, least in left_s.items()]


_meter.create_observable_gauge(
    "relay.ttl.headroom",
    [_observe_headroom],
    "s",
    "The least time that an event on its way still has before Cosmos DB deletes it.",
)


def _observe_ages(_options: CallbackOptions) -> Iterable[Observation]:
    with _observing:
        of_shards, of_leases = list(_shard_ages), list(_lease_ages)
    shards = _oldest([each.ages_s() for each in of_shards])
    leases = _oldest([each.ages_s() for each in of_leases])
    return [
        *(Observation(age_s, {"shard": shard_id}) for shard_id, age_s in shards.items()),
        *(Observation(age_s, {"lease": lease}) for lease, age_s in leases.items()),
    ]


def _oldest(readings: Iterable[Mapping[_PartT, float]]) -> dict[_PartT, float]:
    oldest_s: dict[_PartT, float] = {}
    for ages_s in readings:
        for part, age_s in ages_s.items():
            oldest_s[part] = max(age_s, oldest_s.get(part, 0.0))
    return oldest_s


_meter.create_observable_gauge(
    "relay.feed.age",
    [_observe_ages],
    "s",
    "The age of the oldest change of a lease or a shard that the relay has not passed yet.",
)


class BoundedActions:
    """Attributes for actions: the first `limit` distinct ones have their own, all later ones share `other`.

    An action comes from the payload, so its length and the number of distinct ones are unbounded without this.
    """

    def __init__(self, limit: int = MAX_ACTIONS) -> None:
        self._limit = limit
        self._known: dict[str, Mapping[str, str]] = {}
        self._other: Mapping[str, str] = {"action": OTHER_ACTIONS}

    def attributes(self, action: str) -> Mapping[str, str]:
        """Return the attributes to count an event of this action under."""
        known = self._known.get(action)
        if known is not None:
            return known
        if len(self._known) >= self._limit or len(action) > MAX_ACTION_LENGTH:
            return self._other
        return self._known.setdefault(action, {"action": action})


# A transfer that Service Bus accepted: its events, when in seconds since 1970, after how many seconds, and the
# attributes of its relay's actions.
_Transfer = tuple[Sequence[Event], float, float, BoundedActions]

# Values are recorded here without a span: the SDK would take an example of every value from the span of
# its attempt, which costs as much again as the value.
_WITHOUT_SPAN = trace.set_span_in_context(trace.INVALID_SPAN, Context())


@dataclass(slots=True)
class _Tally:
    """The transfers of one attempt, until they are recorded all at once; None from then on."""

    transfers: list[_Transfer] | None


def _record(transfers: Sequence[_Transfer]) -> None:
    if not transfers:
        return
    of_stream = attributes()
    _sends.add(len(transfers), of_stream, _WITHOUT_SPAN)
    # All transfers belong to the same attempt, and therefore to the same relay.
    bounded = transfers[0][3]
    actions = Counter([event.action for events, _, _, _ in transfers for event in events])
    for action, count in actions.items():
        of_action = bounded.attributes(action)
        _published.add(count, {**of_action, **of_stream} if of_stream else of_action, _WITHOUT_SPAN)
    for events, at, duration_s, _ in transfers:
        _send_duration.record(duration_s, of_stream, _WITHOUT_SPAN)
        _batch_events.record(len(events), of_stream, _WITHOUT_SPAN)
        for event in events:
            if event.committed_at is not None:
                # Clocks of outbox and machine may differ, and a histogram takes nothing below zero.
                _lag.record(max(0.0, at - event.committed_at), of_stream, _WITHOUT_SPAN)


_tally: ContextVar[_Tally | None] = ContextVar("_tally", default=None)


@contextmanager
def counted_together() -> Iterator[None]:
    """Events that this task and those that it starts publish are recorded at the end, however it ends."""
    transfers: list[_Transfer] = []
    tally = _Tally(transfers)
    token = _tally.set(tally)
    try:
        yield
    finally:
        _tally.reset(token)
        # Tasks and cancelled timers may keep this context alive after the attempt, so release the events.
        tally.transfers = None
        _record(transfers)


def received(*, documents: int, ignored: int, retried: bool) -> None:
    """Count what one attempt of an invocation was given."""
    of_stream = attributes()
    _received.add(documents, of_stream)
    if ignored:
        _ignored.add(ignored, of_stream)
    if retried and documents > ignored:
        _redelivered.add(documents - ignored, of_stream)


def accepted(events: Sequence[Event], duration_s: float, actions: BoundedActions) -> None:
    """Count one transfer that Service Bus accepted now, after `duration_s` seconds, with its relay's `actions`.

    Within `counted_together`, nothing is recorded before its end. `events` must not change until then.
    """
    transfer = (events, time.time(), duration_s, actions)
    tally = _tally.get()
    if tally is None or tally.transfers is None:
        _record([transfer])
    else:
        tally.transfers.append(transfer)


def already_published(events: int) -> None:
    """Count events that were not sent again, as the ledger holds them."""
    if events:
        _ledger_hits.add(events, attributes())


def quarantined(reason: Reason) -> None:
    """Count one record that was not in the quarantine container before."""
    _quarantined.add(1, {"reason": str(reason), **(attributes() or {})})
