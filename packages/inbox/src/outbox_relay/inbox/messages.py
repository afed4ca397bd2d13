"""The message that a handler receives, without I/O or types of an SDK."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from outbox_relay.inbox.errors import DeadLetter


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


def _refuse(constant: str) -> None:
    """Refuse NaN and the infinities, which Python reads and JSON does not have."""
    raise ValueError(f"{constant} is not JSON")
