"""The fate of a queue's latest messages, in bounded memory: for observers, not for the broker itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from outbox_relay.emulators.servicebus.entry import Entry

# Some 300 bytes each.
LIMIT = 10_000


class Fate(StrEnum):
    """The fate of a message."""

    WAITING = "waiting"
    COMPLETED = "completed"
    DEAD_LETTERED = "dead-lettered"
    EXPIRED = "expired"
    DELETED = "deleted"
    FORWARDED = "forwarded"


@dataclass(slots=True)
class Story:
    """One message. Times are milliseconds since the Unix epoch.

    Attributes:
        change: Grows with every change in the queue.
        accepted_ms: When the queue took it.
        deliveries: Number of deliveries to receivers.
        fate: Its end; `ended_ms` is when, and `reason` why it was dead-lettered.
    """

    change: int
    message_id: str | None
    session_id: str | None
    accepted_ms: int
    deliveries: int = 0
    fate: Fate = Fate.WAITING
    ended_ms: int | None = None
    reason: str | None = None

    def as_object(self) -> dict[str, Any]:
        return asdict(self)


class Journal:
    """The stories of the messages that changed last.

    Attributes:
        change: The number of the last change.
        completed: Number of messages that receivers have completed since the start.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.change = 0
        self.completed = 0
        self._limit = limit
        # By sequence number; what changed last comes last.
        self._stories: dict[int, Story] = {}

    def accepted(self, entry: Entry, now: int) -> None:
        """Note that a message is ready to be received from now on."""
        message = entry.message
        self._keep(entry, Story(0, message.message_id, message.session_id, now))
        if len(self._stories) > self._limit:
            del self._stories[next(iter(self._stories))]

    def delivered(self, entry: Entry) -> None:
        """Note that a receiver gets the message."""
        story = self._stories.pop(entry.sequence_number, None)
        if story is not None:
            story.deliveries += 1
            self._keep(entry, story)

    def ended(self, entry: Entry, fate: Fate, now: int, reason: str | None = None) -> None:
        """Note that the queue holds the message no longer."""
        self.completed += fate is Fate.COMPLETED
        story = self._stories.pop(entry.sequence_number, None)
        if story is not None:
            story.fate, story.ended_ms, story.reason = fate, now, reason
            self._keep(entry, story)

    def after(self, change: int, session_id: str | None = None) -> list[Story]:
        """Return the messages changed after a change, in that order; of one session, if given."""
        found = list(self._newest(change))
        found.reverse()
        return [story for story in found if session_id is None or story.session_id == session_id]

    def waiting(self, limit: int) -> list[tuple[int, Story]]:
        """Return the messages that have waited longest, each with its sequence number; locked ones wait too."""
        found = [each for each in self._stories.items() if each[1].fate is Fate.WAITING]
        return sorted(found, key=lambda each: (each[1].accepted_ms, each[0]))[:limit]

    def _newest(self, change: int) -> Iterator[Story]:
        for story in reversed(self._stories.values()):
            if story.change <= change:
                return
            yield story

    def _keep(self, entry: Entry, story: Story) -> None:
        self.change += 1
        story.change = self.change
        self._stories[entry.sequence_number] = story
