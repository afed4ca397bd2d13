"""Handles a message. The function app and the plain receiver share this handler."""

from __future__ import annotations

import logging

from samples.contacts.consumer.changes import parse_change, parse_event
from samples.contacts.consumer.directory import Directory

_log = logging.getLogger(__name__)


def handle(body: bytes, directory: Directory, sequence: int | None = None) -> bool:
    """Apply the event in a message to the directory. Idempotent: handle a message again if in doubt.

    Args:
        body: The message's body.
        directory: The directory of this consumer.
        sequence: The event's number within its contact, if it has one.

    Returns:
        Whether the directory changed.

    Raises:
        UnreadableEvent: The message can never be handled. Dead-letter it.
    """
    event = parse_event(body)
    change = parse_change(event)
    applied = False
    if change is not None:
        applied = directory.apply(change)
        outcome = "applied" if applied else "ignored, not newer"
        _log.info("contact %s, version %d: %s", change.contact_id, change.version, outcome)
    contact_id = event.get("contactId")
    if sequence is not None and isinstance(contact_id, str):
        # Also for an event that the directory ignores, which would otherwise count as missing.
        for number in directory.gaps.note(contact_id, sequence):
            _log.warning("contact %s: event %d is missing, event %d has arrived", contact_id, number, sequence)
    return applied
