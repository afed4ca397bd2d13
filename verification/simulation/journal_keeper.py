"""The journal of a universe, and what an operator sees in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.config.settings import OnPoison
from relay.core.events import Reason
from relay.core.holds import ORDER_TYPE, is_pending
from relay.quarantine.record import RECORD_TYPE
from verification.journal import entries
from verification.journal.entries import Entry
from verification.simulation.world import World


class Notes:
    """The occurrences in a universe, as they are noted.

    Attributes:
        policy: What becomes of events behind a poisoned one.
        journal: What has happened, in order.
        discarded: The events, by key and id, whose records an operator has begun to discard.
    """

    def __init__(self, world: World, policy: OnPoison) -> None:
        self.world = world
        self.policy = policy
        self.journal: list[Entry] = []
        self.discarded: set[tuple[str, str]] = set()

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
        """Return the events, by key and id, that have waited so long for their content, as an operator sees it."""
        waiting: dict[tuple[str, str], entries.Committed] = {}
        settled: dict[tuple[str, str], entries.Committed] = {}
        leases: set[str] = set()
        for each in self.journal:
            if isinstance(each, entries.Committed) and not each.sound:
                waiting[each.key, each.id] = each
            elif isinstance(each, entries.SetAside | entries.Parked | entries.Ordered):
                event = waiting.pop((each.key, each.id), None)
                if event is not None:
                    settled[event.key, event.id] = event
            elif isinstance(each, entries.Checkpointed) and each.lease not in leases:
                leases.add(each.lease)
                if self.policy is OnPoison.BLOCK:
                    # A host that was frozen may divide a lease where it had been long ago: what was set aside
                    # since blocks again, as its order is gone.
                    waiting |= {
                        name: event
                        for name, event in settled.items()
                        if each.has(event.place) and not each.passed(event)
                    }
        before = self.world.now - longer_than_s
        return [name for name, event in waiting.items() if event.at <= before]

    def stored(self, created: bool, key: str, item: Mapping[str, Any]) -> None:
        """Note that an item of the quarantine was created, or else deleted."""
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
