"""Which fields of an outbox are the id, the key and so on: the part `[fields]` of relay.toml."""

from __future__ import annotations

from dataclasses import dataclass

from relay.events import Document


@dataclass(frozen=True, slots=True)
class Fields:
    """The places of an event's fields in the documents of an outbox."""

    def document(self, stored: Document) -> Document:
        """The document in the shape of relay/events.py."""
        return stored


PLAIN = Fields()
"""The fields of an outbox whose documents have that shape."""
