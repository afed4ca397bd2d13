"""A topic with sessions and a duplicate detection window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relay.servicebus.messages import Message

# With which a topic blames the content.
CONDITIONS = ("com.microsoft:argument-out-of-range", "amqp:decode-error", "amqp:not-allowed")


class RefusedError(Exception):
    """The topic refuses a transfer, with a condition."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class BusyError(Exception):
    """The namespace is throttled."""


@dataclass(slots=True)
class Topic:
    """The topic.

    Attributes:
        window_s: The duplicate detection window, in seconds.
        accepted: What subscribers get, by session, in order.
        refuses: The condition with which it refuses everything at the moment, if it does.
        is_busy: Whether it is throttled.
        learned: When a process has learned that an event was accepted, by its name, the key and the id.
        noted: Called with each message, the process that sent it, its sequence number, and whether it was dropped.
    """

    window_s: float
    noted: Callable[[Message, str, int, bool], None]
    accepted: dict[str, list[str]] = field(default_factory=dict)
    refuses: str | None = None
    is_busy: bool = False
    learned: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    _number: int = 0

    def take(self, messages: Sequence[Message], by: str, poison: Sequence[str], now: float) -> None:
        """Accept a transfer of a process as a whole. `poison` are the conditions that its contents cause.

        Raises RefusedError and BusyError.
        """
        if self.is_busy:
            raise BusyError
        if self.refuses is not None or poison:
            raise RefusedError(self.refuses or poison[0])
        for message in messages:
            number = self._known(message.id, now)
            is_repeat = number is not None
            if number is None:
                self._number += 1
                number = self._number
                self._seen[message.id] = now, number
                self.accepted.setdefault(message.partition_key, []).append(message.id)
            self.noted(message, by, number, is_repeat)

    def _known(self, message_id: str, now: float) -> int | None:
        """Return the number of the message that it had with this id within its window, whatever the session."""
        at, number = self._seen.get(message_id, (-math.inf, 0))
        return number if now - at < self.window_s else None
