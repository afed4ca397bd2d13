"""The consumer of the demo: passes each message to the directory and to the checker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import inbox
from local.demo.tally import Received, Tally
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.receiving import handle_message


class Subscriber:
    """Called with each message before it is completed.

    If a completion is lost, the same message is delivered again with the same sequence number: only the directory
    sees that. A duplicate would be another message.
    """

    def __init__(self, directory: Directory, tally: Tally) -> None:
        self._directory = directory
        self._tally = tally
        self._sequence_numbers: set[int] = set()

    def __call__(self, message: inbox.Message) -> None:
        at = time.time()
        handle_message(message, self._directory)
        if message.sequence_number not in self._sequence_numbers:
            self._sequence_numbers.add(message.sequence_number)
            self._tally.received(_received(message, at))

    def agrees_with(self, contacts: Mapping[str, Any]) -> bool:
        """Whether the directory has exactly these contacts, by id, and no gaps in their events."""
        held = {contact["id"]: contact for contact in self._directory.contacts()}
        return held == contacts and not list(self._directory.gaps)


def _received(message: inbox.Message, at: float) -> Received:
    return Received(
        identifier=message.id,
        session=message.key,
        subject=message.action,
        body=message.body,
        properties=dict(message.properties),
        at=at,
    )
