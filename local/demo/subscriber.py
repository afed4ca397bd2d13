"""The consumer of the demo: passes each message to the directory and to the checker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from local.demo.tally import Received, Tally
from samples.contacts.consumer.changes import sequence_of
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.handler import handle


class Subscriber:
    """Called with each message before it is completed.

    If a completion is lost, the same message is delivered again with the same sequence number: only the directory
    sees that. A duplicate would be another message.
    """

    def __init__(self, directory: Directory, tally: Tally) -> None:
        self._directory = directory
        self._tally = tally
        self._sequence_numbers: set[int | None] = set()

    def __call__(self, message: ServiceBusReceivedMessage) -> None:
        received = _received(message, time.time())
        handle(received.body, self._directory, sequence_of(received.properties))
        if message.sequence_number not in self._sequence_numbers:
            self._sequence_numbers.add(message.sequence_number)
            self._tally.received(received)

    def agrees_with(self, contacts: Mapping[str, Any]) -> bool:
        """Whether the directory has exactly these contacts, by id, and no gaps in their events."""
        held = {contact["id"]: contact for contact in self._directory.contacts()}
        return held == contacts and not list(self._directory.gaps)


def _received(message: ServiceBusReceivedMessage, at: float) -> Received:
    properties = {
        _text(name): _text(value) if isinstance(value, bytes) else value
        for name, value in (message.application_properties or {}).items()
    }
    return Received(
        identifier=message.message_id or "",
        session=message.session_id or "",
        subject=message.subject or "",
        body=b"".join(message.body),
        properties=properties,
        at=at,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
