"""The settings of a queue or subscription, and who receives from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Consumer(Protocol):
    """A receiver of a queue. It takes what it has credit for when it is woken."""

    def wake(self) -> None:
        """Take a message that may be ready."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How a queue or subscription behaves. Durations are milliseconds; None is without a limit.

    `counts_deliveries` is false for dead-letter queues, whose queue `dead_letters_of` names.
    """

    path: str
    lock_ms: int
    max_delivery_count: int | None
    default_ttl_ms: int | None
    dead_letter_on_expiry: bool
    requires_session: bool = False
    counts_deliveries: bool = True
    partitioned: bool = False
    forward_to: str | None = None
    dead_letters_of: str | None = None
