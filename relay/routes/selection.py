"""Which documents of an outbox are events of one stream: the rules of relay.toml, seen from one destination.

A stream is one outbox read for one destination. Each has its own leases or claims, its own quarantine and its own
publisher, so that it keeps every guarantee by itself, and waits for nobody (docs/decisions/0022-streams.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relay.core.documents import SourceDocument, StoredDocument
from relay.core.events import Event, Reason, Rejected
from relay.routes.conditions import Condition, Decision, decision
from relay.routes.mapping import PLAIN, Fields

DEFAULT = "default"
"""The name of the outbox, and of the destination, that the environment alone describes."""


@dataclass(frozen=True, slots=True)
class Route:
    """A rule: events for which every condition holds go to these destinations. The first such route counts.

    Attributes:
        when: The conditions; none for a route of every event.
        to: Names of destinations.
    """

    when: tuple[Condition, ...]
    to: tuple[str, ...]

    def holds(self, document: SourceDocument) -> bool:
        return all(condition.holds(document) for condition in self.when)

    def covers(self, other: Route) -> bool:
        """Return True if this route is known to take every event that the other one takes."""
        return all(any(each.implies(condition) for each in other.when) for condition in self.when)

    @property
    def events(self) -> str:
        """The conditions, in a sentence."""
        return " and ".join(map(str, self.when)) or "everything else"

    def __str__(self) -> str:
        return f"{self.events} → {', '.join(self.to)}"


@dataclass(frozen=True, slots=True)
class Selection:
    """The events of one stream.

    Attributes:
        types: The types of the documents that are events; none if every document is one.
        events: Further conditions that a document has to fulfil to be an event at all.
        routes: The rules of the outbox, in order; none if everything goes to its only destination.
        destination: The stream's destination.
        is_first: Whether it is the first stream of its outbox, which has what belongs to no other one.
        keeps_unrouted: Whether it sets aside the events that no route takes, as the first stream may.
        fields: Where the fields of an event are in what the outbox stores. All methods but `document_of` and
            `mapped` take documents whose fields are known.
        takes: Whether a document is the stream's, to publish or to set aside. Every document is asked about.
        may_be_unrouted: Whether `judged` may set aside an event that the stream takes.
    """

    types: tuple[str, ...]
    events: tuple[Condition, ...] = ()
    routes: tuple[Route, ...] = ()
    destination: str = DEFAULT
    is_first: bool = True
    keeps_unrouted: bool = False
    fields: Fields = PLAIN
    takes: Callable[[SourceDocument], bool] = field(init=False, repr=False, compare=False)
    may_be_unrouted: bool = field(init=False, repr=False, compare=False)
    _has_route: Decision = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "takes", self._decided())
        routed = decision([(each.when, True) for each in self.routes], otherwise=False)
        object.__setattr__(self, "_has_route", routed)
        object.__setattr__(self, "may_be_unrouted", self.keeps_unrouted and routed is not True)

    def _decided(self) -> Callable[[SourceDocument], bool]:
        rules = [(each.when, self.destination in each.to) for each in self.routes]
        decide = decision(rules, otherwise=self.keeps_unrouted) if rules else True
        if len(self.types) == 1 and not self.events:
            if decide is True:
                return _of_type(self.type)
            if decide is not False:
                return _of_type_and(self.type, decide)

        def takes(document: SourceDocument) -> bool:
            return (
                self.has_type(document.fields.get("type"))
                and all(condition.holds(document) for condition in self.events)
                and (decide if isinstance(decide, bool) else decide(document))
            )

        return takes

    def document_of(self, stored: StoredDocument) -> SourceDocument | None:
        """Return the document that a stored one is here, or None if it is none of the stream's."""
        document = self.mapped(stored) if self.fields.is_mapped else SourceDocument.plain(stored)
        return document if document is not None and self.takes(document) else None

    def mapped(self, stored: StoredDocument) -> SourceDocument | None:
        """Return the document of a stored one in an outbox with other fields.

        It is None if its type is none of these.
        """
        return self.fields.document(stored) if self.has_type(self.fields.type_of(stored)) else None

    @property
    def type(self) -> str:
        """The type of an event whose outbox does not say it."""
        return self.types[0] if self.types else BY_DEFAULT.types[0]

    @property
    def types_text(self) -> str:
        """The types in a sentence."""
        return " or ".join(map(repr, self.types)) or "any"

    @property
    def is_by_type(self) -> bool:
        """True if the type alone decides."""
        return not self.events and not self.routes

    def has_type(self, found: object) -> bool:
        """Return True if a document of this type may be an event."""
        return found in self.types or not self.types

    def unmet(self, document: SourceDocument) -> str | None:
        """Return the condition for an event that this document does not fulfil, or None if it is an event."""
        if not self.has_type(document.fields.get("type")):
            return f"the type is {self.types_text}"
        return next((str(each) for each in self.events if not each.holds(document)), None)

    def route_of(self, document: SourceDocument) -> Route | None:
        """Return the route that counts for an event, or None if there is none."""
        return next((route for route in self.routes if route.holds(document)), None)

    def judged(self, event: Event | Rejected) -> Event | Rejected:
        """Return the event, or its rejection if it is to be set aside because no route takes it."""
        if not self.may_be_unrouted or isinstance(event, Rejected):
            return event
        routed = self._has_route
        if routed if isinstance(routed, bool) else routed(event.document):
            return event
        return Rejected.of(event, Reason.NO_ROUTE, "no route of relay.toml takes it")


def _of_type(event_type: str) -> Callable[[SourceDocument], bool]:
    return lambda document: document.fields.get("type") == event_type


def _of_type_and(event_type: str, decide: Callable[[SourceDocument], bool]) -> Callable[[SourceDocument], bool]:
    return lambda document: document.fields.get("type") == event_type and decide(document)


BY_DEFAULT = Selection(("domainEvent",))
"""The events of an outbox of which the settings say nothing."""
