"""The consumers of the demo: one of all events, for the directory and a checker, and one of a second topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from local.demo.tally import Received, Tally
from outbox_relay import inbox
from samples.contacts.consumer.kept import Kept


class Observer:
    """Called with each message before it is completed.

    If a completion is lost, the same message is delivered again with the same sequence number, which is not
    recorded. A duplicate would be another message.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._sequence_numbers: set[int] = set()

    def __call__(self, message: inbox.Message) -> None:
        self.record(message, time.time())

    def record(self, message: inbox.Message, at: float) -> None:
        """Record a message that was received at this time, unless it was delivered before."""
        if message.sequence_number not in self._sequence_numbers:
            self._sequence_numbers.add(message.sequence_number)
            self._tally.received(_received(message, at))


class Subscriber:
    """Passes messages to the directory, which sees redeliveries too, and then to the checker."""

    def __init__(self, directory: Kept, tally: Tally) -> None:
        self._directory = directory
        self._observer = Observer(tally)

    async def __call__(self, message: inbox.Message) -> None:
        at = time.time()
        await self._directory.handle(message)
        self._observer.record(message, at)

    async def agrees_with(self, contacts: Mapping[str, Any]) -> bool:
        """Return True if the directory has exactly these contacts, by id, and no gaps in their events."""
        held = {contact["id"]: contact for contact in await self._directory.contacts()}
        return held == contacts and not await self._directory.missing()


def _received(message: inbox.Message, at: float) -> Received:
    return Received(
        identifier=message.id,
        session=message.key,
        subject=message.action,
        body=message.body,
        properties=dict(message.properties),
        at=at,
        accepted_at=None if message.enqueued_at is None else message.enqueued_at.timestamp(),
    )
