"""The interface of stores that park keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from inbox.parked import Cause, Claim, Kept, ParkedKey, ParkedMessage


class Parking(Protocol):
    """Keeps the messages of parked keys. Each method is a transaction of its own, and may be repeated.

    A key has a row while it is parked, and at least one message. Everything that reads or changes its messages
    locks that row, so that none is left behind in a key that is not parked.

    A message is identified by its topic, subscription, key, id and number (`ParkedMessage.is_repetition_of`).
    Messages are in the order in which they came, those of a subscription in that of their numbers
    (`position_among`).

    A store belongs to one consumer. Other processes see what is written when the method returns.
    """

    async def is_parked(self, topic: str, key: str) -> bool:
        """Return True if messages of the key are set aside."""

    async def park(self, message: ParkedMessage, cause: Cause) -> Kept:
        """Set a message aside, and park its key if it is not parked.

        The first message of a parked key is what parked it. One that is there already stays as it is, as does the
        cause of a key that is parked already.

        Returns:
            ASIDE or HANDLED.

        Raises:
            NotStorable: The message is too large, or has a value that the store cannot hold.
        """

    async def set_aside(self, message: ParkedMessage) -> Kept:
        """Set a message aside behind the others of its key, if its key is parked.

        Raises:
            NotStorable: As `park`.
        """

    # Released keys: what receivers do.

    async def claim(self, topic: str, lasts: timedelta) -> Claim | None:
        """Claim a released key of a topic that nobody has claimed; None if there is none."""

    async def renew(self, claim: Claim, lasts: timedelta) -> bool:
        """Extend a claim from now; False if it is lost."""

    async def next(self, claim: Claim, done: ParkedMessage | None = None) -> ParkedMessage | None:
        """Return the first message of a claimed key, after counting up its attempts.

        Args:
            claim: The claim.
            done: A message that was handled, as `next` returned it. It is removed first.

        Returns:
            None if none was left: the key is no longer parked.

        Raises:
            ClaimLost: The claim was lost, or the key is no longer parked.
        """

    async def give_back(self, claim: Claim, done: ParkedMessage | None = None) -> None:
        """Remove a message that was handled, as `next`, and let others claim the key at once.

        Raises:
            ClaimLost: As `next`.
        """

    async def fail(self, claim: Claim, cause: Cause) -> None:
        """Park a claimed key again, because of its first message.

        Raises:
            ClaimLost: As `next`.
        """

    # What operators do.

    async def keys(self) -> list[ParkedKey]:
        """Return the parked keys, sorted by topic and key."""

    async def messages(
        self, topic: str, key: str, *, after: ParkedMessage | None = None, limit: int = 1000
    ) -> list[ParkedMessage]:
        """Return the messages of a parked key in their order, from the one behind `after` on."""

    async def release(self, topic: str, key: str) -> bool:
        """Hand the messages of a key to the handler; return False if it is not parked.

        Raises:
            NotReleased: Its first message is only a place.
        """

    async def discard(self, topic: str, key: str, messages: Sequence[ParkedMessage]) -> Sequence[ParkedMessage]:
        """Remove these messages of a parked key, and count them as handled.

        What another delivery brings again is skipped by `once`. With its last message, the key is no longer
        parked. A message that is being handled now may have its effect.

        Args:
            topic, key: As of a `Message`.
            messages: As `messages` returned them.

        Returns:
            Those that were removed: the others were handled or discarded meanwhile.
        """


class ClaimLost(Exception):
    """Another process has claimed the key, or it is no longer parked."""


class NotReleased(Exception):
    """The key was not released, because its first message is in the dead-letter queue. Discard its place first."""

    def __init__(self, first: ParkedMessage) -> None:
        super().__init__(
            f"The first message of the key {first.key!r}, {first.id!r} (number {first.number}), could not be read "
            "or not be stored, and is in the dead-letter queue. Handle it there, and discard its place here."
        )
