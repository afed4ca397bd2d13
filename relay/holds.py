"""What quarantine holds back beside documents: parked keys, and orders to set an event aside."""

from __future__ import annotations

from dataclasses import dataclass

from relay.events import EventName


@dataclass(frozen=True, slots=True)
class Holds:
    """What must not be published now.

    Attributes:
        parked: Partition keys whose further events are to be stored with `Reason.KEY_PARKED`.
        set_aside: Events that are to be stored with `Reason.SET_ASIDE`.
    """

    parked: frozenset[str] = frozenset()
    set_aside: frozenset[EventName] = frozenset()
