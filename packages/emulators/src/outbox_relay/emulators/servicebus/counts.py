"""Number of messages in a queue, by state."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_relay.emulators.servicebus.entry import Entry, State


@dataclass(slots=True)
class Counts:
    """Number of messages in each state; a deferred or active one that is locked counts as locked."""

    active: int = 0
    locked: int = 0
    deferred: int = 0
    scheduled: int = 0

    def add(self, entry: Entry) -> None:
        if entry.state is State.SCHEDULED:
            self.scheduled += 1
        elif entry.lock is not None:
            self.locked += 1
        elif entry.state is State.DEFERRED:
            self.deferred += 1
        else:
            self.active += 1
