"""From documents of an outbox to what the console shows of an event."""

from __future__ import annotations

from relay.console.model import Committed
from relay.events import Document
from relay.quarantine.record import NO_PARTITION_KEY


def committed_of(
    document: Document,
    partition: str,
    place: tuple[int, int] | tuple[str, int],
    committed_at: float,
    expires_at: float | None = None,
) -> Committed:
    """An event as the console shows it; `document` has the shape of relay/events.py.

    A document that can never become a message is an event here too: it is on its way to quarantine, whose record
    has the same key.
    """
    key, data = document.get("partitionKey"), document.get("data")
    members = data if isinstance(data, dict) else {}
    return Committed(
        id=str(document.get("id")),
        partition_key=key if isinstance(key, str) else NO_PARTITION_KEY,
        action=_text(members.get("action")),
        committed_at=committed_at,
        created_at=_text(members.get("createdAt")),
        sequence=sequence if type(sequence := document.get("sequence")) is int else None,
        traceparent=_text(document.get("traceparent")),
        partition=partition,
        place=place,
        expires_at=expires_at,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
