"""The commits and receipts of a campaign so far, and those entries of its journals that only it knows."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from local.chaos.recordings import Origin, Recorded, body_of
from local.chaos.streams import NO_ROUTE, SUBSCRIPTION, Destination, Layout, OutboxRoutes
from verification.journal import entries
from verification.journal.entries import Entry, digest_of

SET_ASIDE = "set-aside"
_PARKED = "key-parked"
BEHIND = "behind"
"""The member of a poison document without its own sequence that has that of the next event of its key."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery of a message.

    Attributes:
        sequence_number: The broker's; two deliveries of the same copy share it.
        sequence: The event's number within its key, if the message has one.
        processed: Whether the consumer processed the message and asked to complete it. If that request or its
            answer is lost, the message is delivered again. Otherwise the consumer gave the message back.
    """

    identifier: str
    key: str
    sequence_number: int
    delivery_count: int
    body: bytes
    subject: str
    sequence: object
    processed: bool


@dataclass(slots=True)
class Aside:
    """The documents set aside: those in quarantine, and the operator's actions.

    Attributes:
        records: The reason of each quarantined document, by its id; removed records are among them.
        ordered: Ids of the documents that the operator ordered to be set aside.
    """

    records: dict[str, str] = field(default_factory=dict)
    ordered: set[str] = field(default_factory=set)

    def settles(self, identifier: str) -> bool:
        """Return True if a document is set aside for good: not merely parked behind another one."""
        return self.records.get(identifier, _PARKED) != _PARKED


class _Committed(NamedTuple):
    """An event as its writer committed it; `known_at` is when the writer knew that it was."""

    known_at: float
    key: str
    digest: str
    sound: bool


@dataclass(slots=True)
class History:
    """A stream of a campaign so far.

    Attributes:
        committed: Number of sound events that were committed for it.
        processed: The ids of the events that consumers have processed.
        poison: The reasons that each poison document may be set aside for, by its id.
        delivered_again: Number of redeliveries.
        entries: What the campaign itself did and saw, of the stream's journal.
        clock: Gives seconds since 1970, as the clock of the emulators and the database does.
    """

    committed: int = 0
    processed: set[str] = field(default_factory=set)
    poison: dict[str, frozenset[str]] = field(default_factory=dict)
    delivered_again: int = 0
    entries: list[Entry] = field(default_factory=list)
    clock: Callable[[], float] = time.time
    _events: dict[str, _Committed] = field(default_factory=dict)
    _ids: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _handled: set[tuple[str, int]] = field(default_factory=set)
    _discarded: set[str] = field(default_factory=set)

    def wrote(self, key: str, events: list[dict[str, Any]]) -> None:
        """Note that a batch of a key was committed."""
        for event in events:
            data = event["data"]
            self._wrote(key, event["id"], digest_of(data, data["action"], event["sequence"]), sound=True)
        self.committed += len(events)

    def wrote_poison(self, document: dict[str, Any], reasons: frozenset[str]) -> None:
        """Note the commit of a document that must be set aside for one of these reasons, or by an order."""
        self.poison[document["id"]] = reasons | {SET_ASIDE}
        self._wrote(document["partitionKey"], document["id"], digest_of(document["data"]), sound=False)

    def _wrote(self, key: str, identifier: str, digest: str, *, sound: bool) -> None:
        self._events[identifier] = _Committed(self.clock(), key, digest, sound)
        self._ids[key].append(identifier)

    def ordered(self, key: str, identifier: str, at: float) -> None:
        """Note the operator's order to set a document aside, which began at this time."""
        self.entries.append(entries.Ordered(at=at, by="operator", key=key, id=identifier))

    def discarding(self, key: str, identifier: str) -> None:
        """Note that the operator begins to remove the record of a document, maybe not for the first time."""
        if identifier not in self._discarded:
            self._discarded.add(identifier)
            self.entries.append(entries.Discarded(at=self.clock(), by="operator", key=key, id=identifier))

    def befell(self, process: str, of: type[Entry]) -> None:
        """Note that a process was killed, frozen or resumed."""
        self.entries.append(of(at=self.clock(), by=process))

    def received(self, receipt: Receipt) -> None:
        """Note that a message was delivered."""
        self.delivered_again += receipt.delivery_count > 0
        if receipt.processed:
            self.processed.add(receipt.identifier)
            self._handle(receipt)

    def _handle(self, receipt: Receipt) -> None:
        """Handle a message.

        Consumers know a redelivery by its number; a second copy, caused by the relay, has its effect again.
        """
        copy = receipt.identifier, receipt.sequence_number
        if copy in self._handled:
            return
        self._handled.add(copy)
        self.entries.append(
            entries.Handled(
                at=self.clock(),
                key=receipt.key,
                id=receipt.identifier,
                consumer=SUBSCRIPTION,
                digest=digest_of(body_of(receipt.body), receipt.subject, receipt.sequence),
                number=receipt.sequence_number,
            )
        )

    @property
    def complete(self) -> bool:
        """True if every committed event was processed."""
        return len(self.processed) >= self.committed

    def has(self, key: str, identifier: str) -> bool:
        """Return True if an event was committed for this stream."""
        return identifier in self._ids.get(key, ())

    def outstanding(self, aside: Aside) -> dict[str, list[str]]:
        """Return, by key, the events that were neither processed nor set aside.

        Poison counts if it was not set aside.
        """
        found: dict[str, list[str]] = {}
        for key, identifiers in self._ids.items():
            waiting = [each for each in identifiers if not aside.settles(each)]
            waiting = [each for each in waiting if each in self.poison or each not in self.processed]
            if waiting:
                found[key] = sorted(waiting, key=lambda each: each in self.poison)
        return found

    def journal(self, recorded: Recorded, of_topic: Iterable[Entry]) -> list[Entry]:
        """Return the whole journal: with what happened in the outbox, and at the topic."""
        of_outbox = [
            entry
            for entry in recorded.entries
            # The operator's own entry says that a record was discarded, and not released.
            if not (isinstance(entry, entries.Released) and entry.id in self._discarded)
        ]
        whole = [*self._commits(recorded.origins), *of_outbox, *of_topic, *self.entries]
        return sorted(whole, key=lambda entry: entry.at)

    def _commits(self, origins: Mapping[str, Origin]) -> Iterator[Entry]:
        """Yield the commits in the order of the source, which within a commit is that of writing."""
        found = {
            identifier: origins.get(identifier, Origin(event.known_at, None, ""))
            for identifier, event in self._events.items()
        }
        for identifier, origin in sorted(found.items(), key=lambda each: (each[1].at, each[1].position or ())):
            event = self._events[identifier]
            yield entries.Committed(
                at=origin.at,
                key=event.key,
                id=identifier,
                position=origin.position,
                digest=event.digest,
                place=origin.place,
                sound=event.sound,
            )


class Histories:
    """A campaign so far: the history of each stream.

    Attributes:
        layout: The streams.
        of: The history of each, by the stream's name.
        committed: Number of sound events that were committed.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._ids: set[str] = set()
        self.of = {stream.name: History() for stream in layout.streams}
        self.committed = 0
        self._moved = asyncio.Event()

    def wrote(self, key: str, events: list[dict[str, Any]]) -> None:
        """Note that a batch of a key was committed."""
        self._note_batch(key, events)
        self._ids.update(event["id"] for event in events)
        self.committed += len(events)
        self._moved.set()

    def _note_batch(self, key: str, events: list[dict[str, Any]]) -> None:
        for stream in self.layout.streams:
            own = [event for event in events if stream in self.layout.streams_of(event)]
            if own:
                self.of[stream.name].wrote(key, own)

    def wrote_poison(self, document: dict[str, Any], reasons: frozenset[str]) -> None:
        """Note the commit of a document that must be set aside for one of these reasons, or by an order."""
        if self.layout.is_unrouted(document):
            reasons |= {NO_ROUTE}
        self._ids.add(document["id"])
        self._note_poison(document, reasons)

    def _note_poison(self, document: dict[str, Any], reasons: frozenset[str]) -> None:
        for stream in self.layout.streams_of(document):
            self.of[stream.name].wrote_poison(document, reasons)

    @property
    def unassigned(self) -> dict[str, list[str]]:
        """By key, the ids of the events of which it is not known yet which streams they are for."""
        return {}

    def misrouted(self, stream: str, accepted: Iterable[Entry]) -> int:
        """Return the number of events that were accepted where a stream brings them, and are not for it."""
        found = {each.id: each.key for each in accepted if isinstance(each, entries.Accepted)}
        own = self.of[stream]
        return sum(identifier in self._ids and not own.has(key, identifier) for identifier, key in found.items())

    async def until_committed(self, events: float) -> None:
        """Wait until that many events were committed."""
        while self.committed < events:
            self._moved.clear()
            await self._moved.wait()

    def befell(self, process: str, of: type[Entry]) -> None:
        """Note that a process was killed, frozen or resumed."""
        for history in self.of.values():
            history.befell(process, of)

    def received(self, destination: Destination, receipt: Receipt) -> None:
        """Note that a message was delivered.

        If no stream brings it there, a journal has it as accepted, but not as handled.
        """
        stream = self.layout.stream(receipt.key, destination)
        if stream is not None:
            self.of[stream.name].received(receipt)

    @property
    def expected(self) -> int:
        """Number of messages that the events committed so far become."""
        return sum(history.committed for history in self.of.values())

    @property
    def processed(self) -> int:
        """Number of messages that consumers have processed."""
        return sum(len(history.processed) for history in self.of.values())

    @property
    def delivered_again(self) -> int:
        """Number of redeliveries."""
        return sum(history.delivered_again for history in self.of.values())

    @property
    def complete(self) -> bool:
        """True if every committed event was processed at each of its destinations."""
        return not self.unassigned and all(history.complete for history in self.of.values())


class LaterHistories(Histories):
    """A campaign whose rules change: which streams an event is for is known after its commit."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._unassigned: dict[str, _Unassigned] = {}

    def _note_batch(self, key: str, events: list[dict[str, Any]]) -> None:
        for event in events:
            self._unassigned[event["id"]] = _Unassigned(time.time(), event, None)

    def _note_poison(self, document: dict[str, Any], reasons: frozenset[str]) -> None:
        self._unassigned[document["id"]] = _Unassigned(time.time(), document, reasons)

    @property
    def unassigned(self) -> dict[str, list[str]]:
        """By key, the ids of the events of which it is not known yet which streams they are for."""
        found: dict[str, list[str]] = {}
        for identifier, each in self._unassigned.items():
            found.setdefault(each.document["partitionKey"], []).append(identifier)
        return found

    def unassigned_since(self, outbox: str) -> float | None:
        """Return when the first unassigned event of an outbox was known to be committed; None without any."""
        known = (
            each.known_at
            for each in self._unassigned.values()
            if self.layout.outbox_of(each.document["partitionKey"]) == outbox
        )
        return min(known, default=None)

    def assign(
        self, outbox: str, committed_at: Mapping[str, int], routes_at: Callable[[int], OutboxRoutes | None]
    ) -> None:
        """Assign the events of an outbox to their streams, as far as it is settled which routes count for them.

        Args:
            outbox: Its name.
            committed_at: Commit times by the ids of events, in whole seconds since 1970.
            routes_at: Returns the routes for a commit time; None where it is not settled yet.
        """
        for identifier, each in list(self._unassigned.items()):
            key = each.document["partitionKey"]
            if self.layout.outbox_of(key) != outbox or identifier not in committed_at:
                continue
            routes = routes_at(committed_at[identifier])
            if routes is None:
                continue
            del self._unassigned[identifier]
            for stream in self.layout.streams_of(each.document, routes):
                if each.reasons is None:
                    self.of[stream.name].wrote(key, [each.document])
                else:
                    self.of[stream.name].wrote_poison(each.document, each.reasons)


class _Unassigned(NamedTuple):
    """An event, or poison with the reasons it may be set aside for, and when it was known to be committed."""

    known_at: float
    document: dict[str, Any]
    reasons: frozenset[str] | None
