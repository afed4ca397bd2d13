"""What is done with a message: the one handler of the Functions app and of the plain receiver."""

from __future__ import annotations

import logging

from samples.contacts.consumer.changes import change_of, event_of
from samples.contacts.consumer.directory import Directory

_log = logging.getLogger(__name__)


def handle(body: bytes, directory: Directory, sequence: int | None = None) -> bool:
    """Bring the directory up to what a message tells. To be called again after any doubt: it is idempotent.

    Args:
        body: The message's body.
        directory: The directory of this consumer.
        sequence: The event's number among those of its contact; None where it has none.

    Returns:
        Whether it told something new.

    Raises:
        UnreadableEvent: It can never be handled: set it aside.
    """
    event = event_of(body)
    change = change_of(event)
    news = False
    if change is not None:
        news = directory.apply(change)
        what = "taken over" if news else "known already, or older than what is known"
        _log.info("contact %s, version %d: %s", change.contact_id, change.version, what)
    contact_id = event.get("contactId")
    if sequence is not None and isinstance(contact_id, str):
        # Of an event that is not for the directory as well: it is not missing.
        for number in directory.gaps.note(contact_id, sequence):
            _log.warning("contact %s: event %d has not come, event %d has", contact_id, number, sequence)
    return news
