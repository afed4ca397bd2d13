"""The words for a source in the texts of commands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """The words for a source.

    Attributes:
        source: The place that a stream reads.
        own: The resources there that the stream has for itself.
        settings: The settings that name the outbox, with their values.
        runs: The process to check when no event arrives, and its log.
        positions: The records of the relay's positions.
        reads: What a relay that has such positions does.
        expiry: When an event that was not deleted is deleted, behind `not deleted`.
    """

    source: str
    own: str
    settings: str
    runs: str
    positions: str
    reads: str
    expiry: str = ""
