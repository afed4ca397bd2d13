"""What every simulated world has: a topic, the quarantine's store, the ways to them, and the journal."""

from __future__ import annotations

from journal import entries
from journal.entries import Entry, digest_of
from relay.events import Reason
from relay.holds import ORDER_TYPE, is_pending
from relay.quarantine.items import Item
from relay.quarantine.record import RECORD_TYPE
from relay.servicebus.messages import Message
from simulation.line import Line
from simulation.plan import Plan
from simulation.store import NotedItems
from simulation.topic import Topic
from simulation.world import World

WINDOW_S = 600.0


class Services:
    """The services of one world.

    Attributes:
        journal: What has happened, in order.
        discarded: The events, by key and id, whose records an operator has begun to discard.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.policy = plan.policy
        self.journal: list[Entry] = []
        self.topic = Topic(WINDOW_S, self._taken)
        self.store = NotedItems(self._stored)
        self.to_topic = Line(world, "topic")
        self.to_store = Line(world, "store")
        self.discarded: set[tuple[str, str]] = set()

    @property
    def lines(self) -> dict[str, Line]:
        """The ways, by the names of the services."""
        return {line.name: line for line in vars(self).values() if isinstance(line, Line)}

    @property
    def unsound(self) -> set[tuple[str, str | None]]:
        """The events, by key and id, that cannot be published."""
        return {
            (each.key, each.id) for each in self.journal if isinstance(each, entries.Committed) and not each.sound
        }

    @property
    def at(self) -> float:
        """The time for the journal."""
        return round(self.world.now, 6)

    def waiting(self, longer_than_s: float) -> list[tuple[str, str]]:
        """The events, by key and id, that have waited so long for their content, as an operator sees it."""
        of_quarantine = (entries.SetAside, entries.Parked, entries.Ordered)
        settled = {(each.key, each.id) for each in self.journal if isinstance(each, of_quarantine)}
        before = self.world.now - longer_than_s
        return [
            (each.key, each.id)
            for each in self.journal
            if isinstance(each, entries.Committed)
            and each.at <= before
            and not each.sound
            and (each.key, each.id) not in settled
        ]

    def _stored(self, created: bool, key: str, item: Item) -> None:
        if item["type"] == ORDER_TYPE and created and is_pending(item):
            self.journal.append(entries.Ordered(at=self.at, key=key, id=item["eventId"]))
        elif item["type"] == RECORD_TYPE:
            event_id = item["document"]["id"]
            if created and item["reason"] == Reason.KEY_PARKED:
                self.journal.append(entries.Parked(at=self.at, key=key, id=event_id))
            elif created:
                self.journal.append(entries.SetAside(at=self.at, key=key, id=event_id, reason=item["reason"]))
            elif (key, event_id) not in self.discarded:
                self.journal.append(entries.Released(at=self.at, key=key, id=event_id))

    def _taken(self, message: Message, by: str, number: int, is_repeat: bool) -> None:
        kind = entries.Duplicate if is_repeat else entries.Accepted
        digest = digest_of(message.body.decode(), message.subject)
        self.journal.append(
            kind(at=self.at, by=by, key=message.partition_key, id=message.id, digest=digest, number=number)
        )
