"""The console's values: of the whole relay, and of one partition key.

Times are in seconds since 1970; a clock of Cosmos DB has whole seconds. None means unknown: in
Azure, the console sees less than on the local stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from outbox_relay.operator.console.history import LATENCY_S, NO_START, History, took_s
from outbox_relay.operator.console.truncation import DETAIL, REASON
from outbox_relay.operator.outcomes import Outcome, Removed
from relay import __version__
from relay.backends.findings import Finding
from relay.backends.outbox import Committed, cut_text, id_name, key_name
from relay.core.events import Reason
from relay.quarantine.items import RecordSummary

EXAMPLES = 10
"""Maximum number of records or messages shown of one reason."""


@dataclass(frozen=True, slots=True)
class Known:
    """When a figure was known.

    Attributes:
        at: When the reading that gave it began; None if there was none.
        stale: Whether it may be wrong by now: it was never read, could not be read again, or was not for too long.
    """

    at: float | None = None
    stale: bool = True


UNKNOWN = Known()
"""Of a figure that was never read."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A physical partition with its lease, or a shard of an SQL feed with its claim.

    Attributes:
        name, owner, position: As of `relay.backends.outbox.Position`.
        behind: Number of events committed behind the position, as far as the console has read.
        oldest_s: The age of the oldest of them; 0 if there is none.
        moved_at: When the position was last seen to move; None if it was not yet.
        retry: The attempt that is under way or awaited, from 2; None if the last attempt succeeded or if
            that cannot be seen from here.
        error: Why the last attempt failed.
        withheld: The host's own error if it cannot hand a page of this partition to the relay; None if it can, or
            if that cannot be seen from here.
        still_since: Since when it has not moved although something waits; None if nothing waits, or if it was
            not seen to move yet.
        held_s: Seconds within which the lease or claim of an owner that is gone ends, negative since it has ended;
            None if the owner is alive, as far as is known.
    """

    name: str
    owner: str | None
    position: str | None
    behind: int
    oldest_s: float
    moved_at: float | None = None
    retry: int | None = None
    error: str | None = None
    withheld: str | None = None
    still_since: float | None = None
    held_s: int | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """The messages of a subscription of the topic.

    Attributes:
        active: Messages that wait for a receiver or are locked by one.
        delivered: Messages that receivers have completed since the broker started.
    """

    name: str
    active: int
    dead_lettered: int
    delivered: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """The number of events at each stage, and their rates; None for what was never read.

    Attributes:
        since: When the console began to read; totals count from the first event it read.
        committed: Events read in the outbox.
        published, waiting: Those that the relay has passed and not set aside; those that it has not passed yet.
        quarantined, parked: Records in quarantine; partition keys that are parked.
        committed_s, published_s: Events a second, over the last ten seconds.
        latency_p50_ms, latency_p99_ms: From the commit to the topic, of the events of the last minute; None if
            there was none whose commit is known to less than a second.
        lag_s: The age of the oldest event that the relay has not passed; 0 if there is none.
        headroom_s: Seconds until the first waiting event is deleted by its time to live; None if none is.
    """

    since: float
    committed: int | None = None
    published: int | None = None
    waiting: int | None = None
    quarantined: int | None = None
    parked: int | None = None
    committed_s: float | None = None
    published_s: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    lag_s: float | None = None
    headroom_s: float | None = None


@dataclass(frozen=True, slots=True)
class QuarantineGroup:
    """The records in quarantine of one reason; `examples` are the oldest of them."""

    reason: str
    count: int
    examples: Sequence[QuarantineRecord] = ()


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """A record in quarantine, without its document."""

    id: str
    partition_key: str
    document_id: str | None
    reason: str
    detail: str
    quarantined_at: str

    @classmethod
    def of(cls, row: RecordSummary) -> QuarantineRecord:
        """Return a record as the console shows it."""
        return cls(
            key_name(row.id),
            key_name(row.partition_key),
            None if row.document_id is None else id_name(row.document_id),
            cut_text(row.reason, REASON),
            cut_text(row.detail, DETAIL),
            cut_text(row.quarantined_at, REASON),
        )

    @property
    def stage(self) -> Stage:
        """The stage of its event."""
        return Stage.PARKED if self.reason == Reason.KEY_PARKED else Stage.QUARANTINED


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of one subscription and reason, as far as they were peeked; `examples` are the oldest."""

    subscription: str
    reason: str
    count: int
    examples: Sequence[DeadLetter] = ()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in a dead-letter queue; `content` is None where the console does not show the data of events."""

    message_id: str
    partition_key: str | None
    subject: str | None
    reason: str
    description: str
    enqueued_at: float | None
    content: MessageContent | None = None


@dataclass(frozen=True, slots=True)
class MessageContent:
    """The beginning of a message's properties, in JSON, and of its body, in Base64 unless it is UTF-8."""

    properties: str
    body: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the page that could not be read, and why. What was read before is still shown."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything but single keys, at one moment.

    Attributes:
        number: Grows whenever anything in the snapshot has changed but the times `at`.
        recent: The latest events, newest first, at most fifty.
        earlier: Those before them, as far as they are in memory, for a search alone: JSON has none of them. Where
            their messages are is as it was when they were among the latest fifty.
        obstacles: What keeps the whole relay from working, each with its remedy.
        known: When each figure was known, by its name here or in `flow`.
        history: The last hour, as far as it was observed.
        removals: The records that operators removed last from quarantine, the newest first, at most fifty.
        parked_keys: The first parked keys by name, at most twenty; `flow` has their number.
    """

    number: int
    at: float
    flow: Flow
    partitions: Sequence[Partition] = ()
    subscriptions: Sequence[Subscription] = ()
    quarantine: Sequence[QuarantineGroup] = ()
    dead_letters: Sequence[DeadLetterGroup] = ()
    recent: Sequence[Tracked] = ()
    earlier: Sequence[Tracked] = ()
    problems: Sequence[Problem] = ()
    obstacles: Sequence[Finding] = ()
    known: Mapping[str, Known] = field(default_factory=dict)
    history: History = field(default_factory=History)
    removals: Sequence[RemovedRecord] = ()
    parked_keys: Sequence[str] = ()

    @property
    def no_latency(self) -> str | None:
        """Why there is no latency of the last minute; None if there is one, or if nothing was read yet."""
        if self.flow.latency_p50_ms is not None or self.flow.published is None:
            return None
        lately = [each for each in self.recent if each.was_accepted_since(self.at - LATENCY_S)]
        if not lately:
            return "no event was accepted in the last minute"
        return next((each.not_measured for each in lately if each.not_measured), None)

    def known_of(self, figure: str) -> Known:
        """Return the time at which a figure was known, by its name."""
        return self.known.get(figure, UNKNOWN)


class Stage(StrEnum):
    """The stage of an event in the relay."""

    COMMITTED = "committed"
    PUBLISHED = "published"
    QUARANTINED = "quarantined"
    PARKED = "parked"
    DISCARDED = "discarded"
    # Its time to live ended before the relay was seen to pass it.
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Removal:
    """An operator's removal of an event's record from quarantine.

    Attributes:
        outcome: `released` or `discarded`.
        at: ISO 8601.
        reason: Why the event was set aside.
        by: The account that did it.
        why: What it said; empty if nothing.
    """

    outcome: Outcome
    at: str
    reason: str
    by: str
    why: str

    @classmethod
    def of(cls, removed: Removed) -> Removal:
        """Return a removal as the console shows it."""
        texts = (removed.at, removed.reason, removed.by, removed.why)
        return cls(removed.outcome, *(cut_text(text, REASON) for text in texts))

    @property
    def stage(self) -> Stage:
        """The stage of its event: a record is released once Service Bus has accepted its event."""
        return Stage.PUBLISHED if self.outcome is Outcome.RELEASED else Stage.DISCARDED


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """A record that an operator has removed from quarantine, and who did it, when and why."""

    record_id: str
    partition_key: str
    document_id: str | None
    removal: Removal

    @classmethod
    def of(cls, removed: Removed) -> RemovedRecord:
        """Return a removed record as the console shows it."""
        document_id = removed.document_id
        return cls(
            key_name(removed.record_id),
            key_name(removed.partition_key),
            None if document_id is None else id_name(document_id),
            Removal.of(removed),
        )


class Arrival(StrEnum):
    """The fate of an event's message at a subscription."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD_LETTERED = "dead-lettered"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message at one subscription.

    Attributes:
        message_id: The event's id.
        accepted_at: When the topic accepted the message.
        at: When it was completed or dead-lettered.
        deliveries: Number of times it was handed to a receiver.
        reason: Why it was dead-lettered.
        again: Whether the topic accepted another message of this id too, as far as is known: an operator has
            resubmitted or replayed the event.
    """

    message_id: str
    subscription: str
    arrival: Arrival
    accepted_at: float | None = None
    at: float | None = None
    deliveries: int | None = None
    reason: str | None = None
    again: bool = False


def accepted_at(deliveries: Iterable[Delivery]) -> float | None:
    """Return the time at which the topic accepted an event, by the broker's clock.

    It is None if no subscription has it.
    """
    return earliest(*(each.accepted_at for each in deliveries))


def earliest(*times: float | None) -> float | None:
    """Return the earliest of the times that are known; None if none is."""
    return min((each for each in times if each is not None), default=None)


class EventState(StrEnum):
    """The state of an event as the page shows it: its stage, and the fate of its messages."""

    COMMITTED = "committed"
    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    DEAD_LETTERED = "dead-lettered"
    QUARANTINED = "quarantined"
    PARKED = "parked"
    DISCARDED = "discarded"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Tracked:
    """An event, and its place.

    Attributes:
        event: As committed; None for one that is in quarantine or at a subscription, and gone from the outbox.
        published_at: When the topic accepted it, or when the console saw that the relay had passed it.
        removed: The last removal of its record by an operator, if its record was removed.
        missing_before: Number of sequence numbers missing between the event before it and this one.
        data: The event's data as JSON text; None unless payloads are shown.
    """

    id: str
    stage: Stage
    event: Committed | None
    published_at: float | None = None
    quarantined: QuarantineRecord | None = None
    deliveries: Sequence[Delivery] = ()
    removed: Removal | None = None
    missing_before: int = 0
    data: str | None = None

    @property
    def state(self) -> EventState:
        """The state in one word: `delivered` if every known subscription has it."""
        arrivals = {each.arrival for each in self.deliveries}
        if Arrival.DEAD_LETTERED in arrivals:
            return EventState.DEAD_LETTERED
        if self.stage is Stage.PUBLISHED:
            return EventState.DELIVERED if arrivals == {Arrival.DELIVERED} else EventState.ACCEPTED
        return EventState(self.stage)

    def was_accepted_since(self, moment: float) -> bool:
        """Return True if the topic accepted the event then or later, as far as is known."""
        if self.stage is not Stage.PUBLISHED:
            return False
        at = self.published_at
        if at is None:
            at = None if self.event is None else self.event.committed_at
        return at is not None and at >= moment

    @property
    def took_s(self) -> float | None:
        """Seconds from the commit to the topic; None if that was not measured, or an operator came between."""
        if self.event is None or self.removed is not None or self._was_published_again:
            return None
        return took_s(self.event.committed_at, self.event.created_at, self.published_at)

    @property
    def _was_published_again(self) -> bool:
        return any(each.again for each in self.deliveries)

    @property
    def not_measured(self) -> str | None:
        """Why there is no figure for an event that was accepted; None if there is one, or nothing to measure."""
        if self.took_s is not None or self.stage is not Stage.PUBLISHED:
            return None
        if self.removed is not None:
            return "an operator released it"
        if self._was_published_again:
            return "it was published again"
        if self.event is None:
            return "the outbox does not have the event any more"
        if self.published_at is None:
            return "it was accepted before the console looked"
        return NO_START


@dataclass(frozen=True, slots=True)
class Timeline:
    """Every event of one partition key, in the order of the feed.

    Attributes:
        events: The last ones, at most as many as were asked for, the oldest first.
        more: Whether there are older ones.
        parked_since: Since when the key is parked, in ISO 8601; None if it is not.
    """

    partition_key: str
    events: Sequence[Tracked]
    more: bool = False
    parked_since: str | None = None
    partition: str | None = None
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of `python -m relay check`, the most serious first; `problem` if it could not be run."""

    at: float
    findings: Sequence[Finding]
    problem: Problem | None = None


GroupedT = TypeVar("GroupedT", RecordSummary, DeadLetter)


def by_reason(found: Iterable[GroupedT]) -> list[tuple[str, list[GroupedT]]]:
    """Return records or messages by reason, the most frequent reason first."""
    groups: dict[str, list[GroupedT]] = {}
    for each in found:
        groups.setdefault(each.reason, []).append(each)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))


def members(value: Snapshot | Timeline | Tracked) -> dict[str, Any]:
    """Return the members of the JSON object of a value.

    An event has its `state` as well, as the page shows it, and `not_measured`: why no time is known.
    A snapshot has the `version` of the console, which `python -m relay --version` prints, and no earlier events.
    """
    match value:
        case Snapshot():
            found = asdict(replace(value, recent=(), earlier=()))
            del found["earlier"]
            return {"version": __version__, **found, "recent": list(map(members, value.recent))}
        case Timeline():
            return {**asdict(replace(value, events=())), "events": list(map(members, value.events))}
        case Tracked():
            return {**asdict(value), "state": value.state, "not_measured": value.not_measured}
