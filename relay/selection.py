"""What a batch of changes holds for the relay."""

from __future__ import annotations

from dataclasses import dataclass, field

from relay.events import DomainEvent
from relay.quarantine import Quarantined


@dataclass(slots=True)
class Selection:
    """What a batch of changes holds: events to publish, documents to set aside, and others, counted.

    `rejected_after` says of each document in `rejected` how many of the events came before it.
    """

    events: list[DomainEvent] = field(default_factory=list)
    rejected: list[Quarantined] = field(default_factory=list)
    rejected_after: list[int] = field(default_factory=list)
    ignored: int = 0
