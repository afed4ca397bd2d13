"""Safeguards and assumptions that can be taken out of a kind of universe, and what takes their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from relay.core.errors import RetryableError
from relay.core.events import Event
from relay.servicebus.key_sender import KeySender
from relay.servicebus.transfers import in_batches


@dataclass(frozen=True, slots=True)
class Control:
    """A safeguard, or an assumption about the service, and what goes wrong without it.

    Attributes:
        without: Takes it out until the block ends.
        wrong: A violation that then has to be found.
        within: Number of universes within which it is.
        first: The first of them.
    """

    without: Callable[[], AbstractContextManager[Any]]
    wrong: str
    within: int
    first: int = 0


async def go_on(self: KeySender, events: Sequence[Event]) -> None:
    """`KeySender.send_in_order`, but what follows a transfer that failed is sent."""
    limits = await self._limits()
    failed: RetryableError | None = None
    for transfer in in_batches(events, self._shared.message_of, limits.batch):
        try:
            if not transfer.is_batch:
                await self._send_alone(transfer, limits)
            elif not await self._send_batch(transfer):
                middle = len(transfer.events) // 2
                await go_on(self, transfer.events[:middle])
                await go_on(self, transfer.events[middle:])
        except RetryableError as error:
            failed = error
    if failed is not None:
        raise failed
