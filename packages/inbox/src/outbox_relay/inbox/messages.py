"""The message that a handler receives, without types of an SDK, and the call of the handler."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from outbox_relay.inbox.errors import DeadLetter

_log = logging.getLogger(__name__)

_missing: ContextVar[list[int] | None] = ContextVar("inbox_missing", default=None)
_closed: ContextVar[list[int] | None] = ContextVar("inbox_closed", default=None)


@dataclass(frozen=True, slots=True)
class Message:
    """A received message.

    Attributes:
        id: The message id, which is the event's id. All deliveries of an event have the same id. In a partitioned
            topic, events of different keys may have the same id.
        key: The session id. Messages with the same key are handled one after another, in order.
        body: The body's bytes.
        action: The subject: what happened.
        sequence: The number of the event within its entity, without gaps; None if the writer gives none.
        created_at: When the event was raised, as the writer wrote it.
        traceparent: The W3C trace context of the request that raised the event.
        properties: All application properties. Text is `str`; binary data is `bytes`, or `str` if it is UTF-8.
        delivery_count: Number of failed deliveries before this one.
        sequence_number: The broker's own number of the message within the queue or subscription.
        enqueued_at: When the broker accepted the message.
        topic: The topic, or the queue, that it was received from.
        subscription: The subscription of the topic that it was received from; "" for a queue.
    """

    id: str
    key: str
    body: bytes
    action: str = ""
    sequence: int | None = None
    created_at: str | None = None
    traceparent: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    delivery_count: int = 0
    sequence_number: int = 0
    enqueued_at: datetime | None = None
    topic: str = ""
    subscription: str = ""

    def json(self) -> Any:
        """Return the body as a JSON value.

        Raises:
            DeadLetter: The body is not JSON, or is nested too deeply to be read: `unreadable`.
        """
        try:
            return json.loads(self.body, parse_constant=_refuse)
        except RecursionError as error:
            raise DeadLetter("unreadable", "The body is nested too deeply.") from error
        except ValueError as error:
            # Not the error's text: it may quote the body.
            raise DeadLetter("unreadable", "The body is not JSON.") from error


Handler = Callable[[Message], Awaitable[object] | object]


async def call(handler: Handler, message: Message) -> None:
    """Call it. Raises what it raises. The task's name says what it handles."""
    if (task := asyncio.current_task()) is not None:
        task.set_name(f"The handler of message {message.id!r} of session {message.key!r}")
    closed = noting_closed()
    result = handler(message)
    if inspect.isawaitable(result):
        await result
    for number in closed:
        _log.info("Message %r of key %r closes a gap: its number %s was missing", message.id, message.key, number)


def note_missing(numbers: range) -> None:
    """Note that the message being handled shows these numbers to be missing; counted if its handler returns.

    A store that repeats its transaction notes them again: only the last time counts.
    """
    noted = _missing.get()
    if noted is not None:
        noted[:] = [len(numbers)]


def noting_missing() -> list[int]:
    """Put what the current task notes from now on into the list that is returned."""
    noted: list[int] = []
    _missing.set(noted)
    return noted


def note_closed(sequence: int) -> None:
    """Note that a number was missing until now. A store that repeats its transaction notes it again."""
    noted = _closed.get()
    if noted is not None:
        noted[:] = [sequence]


def noting_closed() -> list[int]:
    """Put what the current task notes from now on into the list that is returned."""
    noted: list[int] = []
    _closed.set(noted)
    return noted


def _refuse(constant: str) -> None:
    """Refuse NaN and the infinities, which Python reads and JSON does not have."""
    raise ValueError(f"{constant} is not JSON")
