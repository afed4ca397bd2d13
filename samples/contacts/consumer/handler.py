"""What is done with a message: the one handler of the Functions app and of the plain receiver."""

from __future__ import annotations

import logging

from samples.contacts.consumer.changes import change_of
from samples.contacts.consumer.directory import Directory

_log = logging.getLogger(__name__)


def handle(body: bytes, directory: Directory) -> bool:
    """Bring the directory up to what a message tells. To be called again after any doubt: it is idempotent.

    Args:
        body: The message's body.
        directory: The directory of this consumer.

    Returns:
        Whether it told something new.

    Raises:
        UnreadableEvent: It can never be handled: set it aside.
    """
    change = change_of(body)
    if change is None:
        return False
    news = directory.apply(change)
    what = "taken over" if news else "known already, or older than what is known"
    _log.info("contact %s, version %d: %s", change.contact_id, change.version, what)
    return news
