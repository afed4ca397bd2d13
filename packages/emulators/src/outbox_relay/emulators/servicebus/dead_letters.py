"""Dead letters: messages in a dead-letter queue."""

from __future__ import annotations

from outbox_relay.emulators.servicebus.entry import Entry

DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"
TRANSFER_SUFFIX = "/$Transfer" + DEAD_LETTER_SUFFIX
REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"


def dead_letter(entry: Entry, reason: str | None, description: str | None) -> Entry:
    """Return the dead letter of a message; it keeps its sequence number and its age."""
    changes = {REASON: reason, DESCRIPTION: description}
    return Entry(
        entry.message.with_application_properties({k: v for k, v in changes.items() if v is not None}),
        entry.sequence_number,
        entry.enqueued_sequence_number,
        entry.enqueued_ms,
        order=entry.order,
        ttl_ms=entry.ttl_ms,
        delivery_count=entry.delivery_count,
        dead_letter_source=entry.dead_letter_source,
    )
