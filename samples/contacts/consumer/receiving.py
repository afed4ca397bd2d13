"""Handles a message of the plain receiver, which the library `inbox` runs."""

from __future__ import annotations

from outbox_relay import inbox
from samples.contacts.consumer.changes import UnreadableEvent
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.handler import handle


def handle_message(message: inbox.Message, directory: Directory) -> bool:
    """Apply the event in a message to the directory. Return whether the directory changed.

    Raises:
        DeadLetter: The message can never be handled: `unreadable`.
    """
    try:
        return handle(message.body, directory, message.sequence)
    except UnreadableEvent as error:
        raise inbox.DeadLetter("unreadable", str(error)) from error
