"""The streams of a campaign: its outboxes, its destinations, which event goes where, and the files for that.

What is expected is looked up in the table here, and not worked out by the relay's own rules.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local.stack.environment import TOPIC, Source
from local.stack.parts import ENTITIES

SUBSCRIPTION = "all"
DEFAULT = "default"
ORDERS = "orders"

TABLE = "outbox.domain_event"
"""The event table of the first SQL outbox."""

_RECEIVING = {"LockDuration": "PT10S", "MaxDeliveryCount": 1000}


@dataclass(frozen=True, slots=True)
class Destination:
    """A topic with a subscription, or a queue.

    Attributes:
        name: Its name in relay.toml.
        entity: The topic's or the queue's name.
        is_queue: Whether it is a queue.
    """

    name: str
    entity: str
    is_queue: bool = False

    @property
    def receiving(self) -> str:
        """The path that consumers receive from."""
        return self.entity if self.is_queue else f"{self.entity}/Subscriptions/{SUBSCRIPTION}"


DESTINATIONS = (
    Destination(DEFAULT, TOPIC),
    Destination("audit", "audit", is_queue=True),
    Destination("contacts", "contacts"),
)
"""The destinations of a campaign at most, in the order in which they are taken."""

OutboxRoutes = Mapping[str, Sequence[str]]
"""By action, the names of the destinations of an event of one outbox."""
Routes = Mapping[str, OutboxRoutes]
"""By outbox, its routes."""

FIRST_ROUTES: Routes = {
    DEFAULT: {
        "Created": (DEFAULT, "contacts"),
        "NameUpdated": (DEFAULT, "audit"),
        "Deleted": ("audit", "contacts"),
    },
    ORDERS: {"Created": ("audit",), "NameUpdated": ("audit",), "Deleted": (DEFAULT,)},
}
"""The destinations of an event, unless the rules change. The first two destinations have every action."""

NO_ROUTE = "no-route"


@dataclass(frozen=True, slots=True)
class Stream:
    """One outbox read for one destination.

    Attributes:
        name: As relay.config.streams calls it.
        outbox: The name of its outbox.
        destination: Where its events go.
        is_first: Whether it has the events of its outbox that no route takes.
    """

    name: str
    outbox: str
    destination: Destination
    is_first: bool


class Layout:
    """The outboxes, the destinations, and the streams between them."""

    def __init__(self, destinations: int = 1, outboxes: int = 1, *, every: bool = False) -> None:
        """Create a layout. With one of each there are no routes: everything goes from the one to the other.

        With `every`, each outbox has a stream for each destination, whether a route names it or not.
        """
        self.destinations = DESTINATIONS[:destinations]
        self.outboxes = tuple(FIRST_ROUTES)[:outboxes]
        self.is_routed = destinations > 1
        self.streams = [
            Stream(_name(outbox, each.name), outbox, each, is_first=each.name == DEFAULT)
            for outbox in self.outboxes
            for each in self.destinations
            if every or each.name == DEFAULT or any(each.name in to for to in FIRST_ROUTES[outbox].values())
        ]

    def outbox_of(self, key: str) -> str:
        """Return the outbox that has the events of a key."""
        return self.outboxes[zlib.crc32(key.encode()) % len(self.outboxes)]

    def stream(self, key: str, destination: Destination) -> Stream | None:
        """Return the stream that may bring events of a key there."""
        pair = (self.outbox_of(key), destination)
        return next((each for each in self.streams if (each.outbox, each.destination) == pair), None)

    def is_unrouted(self, document: Mapping[str, Any]) -> bool:
        """Return True if no route takes a document."""
        return self.is_routed and not self._to(document)

    def streams_of(self, document: Mapping[str, Any], routes: OutboxRoutes | None = None) -> list[Stream]:
        """Return the streams that publish a document, or set it aside.

        Args:
            document: A document of an event, or a malformed one.
            routes: The routes of its outbox that count for it; None for the first ones.
        """
        to = self._to(document, routes) if self.is_routed else [DEFAULT]
        outbox = self.outbox_of(document["partitionKey"])
        own = [each for each in self.streams if each.outbox == outbox]
        return [each for each in own if (each.destination.name in to if to else each.is_first)]

    def _to(self, document: Mapping[str, Any], routes: OutboxRoutes | None = None) -> list[str]:
        data = document["data"]
        action = data.get("action") if isinstance(data, dict) else None
        routes = FIRST_ROUTES[self.outbox_of(document["partitionKey"])] if routes is None else routes
        return self._there(routes.get(action or "", ()))

    def _there(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that are destinations of this campaign."""
        return [each.name for each in self.destinations if each.name in names]

    def file(self, source: Source, routes: Routes = FIRST_ROUTES, *, later: bool = False) -> str:
        """Return the content of relay.toml; with `later`, rules count for the events committed after a change."""
        sections = ['changed_rules = "later"'] if later else []
        sections += [_outbox(each, source) for each in self.outboxes]
        sections += [
            f'[destinations.{each.name}]\n{"queue" if each.is_queue else "topic"} = "{each.entity}"'
            for each in self.destinations
            if each.name != DEFAULT
        ]
        sections += [
            f'[[routes]]\noutbox = "{outbox}"\nwhen.action = "{action}"\nto = {json.dumps(self._there(to))}'
            for outbox in self.outboxes
            for action, to in routes[outbox].items()
        ]
        return "\n\n".join(sections) + "\n"


def container_of(outbox: str) -> str:
    """Return the container of an outbox in Cosmos DB."""
    return "data" if outbox == DEFAULT else outbox


def table_of(outbox: str) -> str:
    """Return the event table of an SQL outbox."""
    return TABLE if outbox == DEFAULT else f"outbox.{outbox}"


def _outbox(name: str, source: Source) -> str:
    place = f'feed = "{table_of(name)}"' if source is Source.SQL else f'container = "{container_of(name)}"'
    return f"[outboxes.{name}]\n{place}"


def _name(outbox: str, destination: str) -> str:
    return "-".join(each for each in (outbox, destination) if each != DEFAULT) or DEFAULT


def entities_document(
    destinations: Sequence[Destination] = DESTINATIONS[:1], *, duplicate_detection: bool, window_s: int
) -> dict[str, Any]:
    """Return the project's Config.json with one subscription, locks of 10 seconds, and 1000 deliveries.

    Args:
        destinations: Further topics and queues are like its topic.
        duplicate_detection: False removes that safeguard.
        window_s: The duplicate detection window in seconds.
    """
    document: dict[str, Any] = json.loads(ENTITIES.read_text())
    namespace = document["UserConfig"]["Namespaces"][0]
    topic = namespace["Topics"][0]
    topic["Properties"]["RequiresDuplicateDetection"] = duplicate_detection
    topic["Properties"]["DuplicateDetectionHistoryTimeWindow"] = f"PT{window_s}S"
    topic["Subscriptions"] = topic["Subscriptions"][:1]
    receiving = topic["Subscriptions"][0]["Properties"]
    receiving |= _RECEIVING
    for each in destinations:
        if each.is_queue:
            namespace["Queues"].append({"Name": each.entity, "Properties": {**topic["Properties"], **receiving}})
        elif each.name != DEFAULT:
            namespace["Topics"].append({**topic, "Name": each.entity})
    return document
