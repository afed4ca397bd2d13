"""Transfers without an answer: those that took longer than the timeout, and those whose link the service ended.

Of the latter, any may be the cause, or none: a connection also ends when a host of the service is updated. Which
one it is shows only if each is sent alone. The records outlive an attempt, as the sender of a key does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from relay.core.errors import RetryableError
from relay.core.verdict import ENDS_ALONE
from relay.servicebus.transfers import Transfer

GRACE_S = 30.0
"""Seconds for which the link of a transfer that was given up is kept, so that a late acceptance is still noted."""

# Maximum number of partition keys with a suspect.
_KEYS_AT_MOST = 1_000


class LateAcceptances:
    """The known acceptances that came after the timeout."""

    def __init__(self) -> None:
        self._longest_s = 0.0

    def note(self, seconds: float) -> None:
        self._longest_s = max(self._longest_s, seconds)

    def unanswered(self, timeout_s: float) -> RetryableError:
        said = f"Service Bus did not answer within RELAY_SEND_TIMEOUT_S ({timeout_s:.3g} s)"
        if self._longest_s > timeout_s:
            said += f"; it accepted an earlier transfer after {self._longest_s:.1f} s: set a larger value"
        return RetryableError(f"{said}.")


@dataclass(slots=True)
class _Suspicion:
    """Of one partition key, which has one transfer in flight.

    Attributes:
        ids: Its events that may be the cause.
        transfer: The ids of the transfer that the counts are about.
        in_flight: Number of transfers in flight when its link ended last.
        ends_alone: Number of times that its link ended while nothing else was in flight.
        accepted: Number of transfers accepted before its first link ended.
    """

    ids: set[str]
    transfer: tuple[str, ...]
    in_flight: int
    ends_alone: int
    accepted: int


class Suspects:
    """The transfers that may have ended a link. The oldest are forgotten if there are too many.

    Attributes:
        accepted: Number of transfers accepted, whichever link they took.
    """

    def __init__(self) -> None:
        self.accepted = 0
        self._by_key: dict[str, _Suspicion] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def among(self, transfer: Transfer) -> int:
        """Return the number of transfers one of which is the cause, if this is one of them; 0 if it is not.

        A part of a suspect is alone: the batch that it was in has been refused.
        """
        found = self._by_key.get(_key(transfer))
        if found is None:
            return 0
        ids = _ids(transfer)
        if found.ids.isdisjoint(ids):
            return 0
        return found.in_flight if ids == found.transfer else 1

    def ended(self, transfer: Transfer, in_flight: int, *, busy: bool = False) -> bool:
        """Note that a link ended with this transfer and others in flight; returns whether it is the cause.

        It is if its link has ended more than once with nothing else in flight, while the service has accepted
        another transfer since the first time: in an outage, nothing is accepted. Ends of a `busy` service do not
        count.
        """
        key, ids = _key(transfer), _ids(transfer)
        found = self._by_key.get(key)
        if found is None or found.ids.isdisjoint(ids):
            self._make_room()
            found = self._by_key[key] = _Suspicion(set(ids), ids, in_flight, 0, self.accepted)
        elif found.transfer != ids:
            found.ids.update(ids)
            found.transfer, found.ends_alone = ids, 0
        found.in_flight = in_flight
        if busy:
            return False
        found.ends_alone += in_flight == 1
        return found.ends_alone >= ENDS_ALONE and self.accepted > found.accepted

    def clear(self, transfer: Transfer) -> None:
        """Clear a transfer that the service has answered, so that it does not end links."""
        key = _key(transfer)
        if (found := self._by_key.get(key)) is not None:
            found.ids.difference_update(_ids(transfer))
            if not found.ids:
                del self._by_key[key]

    def _make_room(self) -> None:
        if len(self._by_key) >= _KEYS_AT_MOST:
            del self._by_key[next(iter(self._by_key))]


def _key(transfer: Transfer) -> str:
    return transfer.events[0].partition_key


def _ids(transfer: Transfer) -> tuple[str, ...]:
    return tuple(event.id for event in transfer.events)


def is_the_cause(error: RetryableError) -> RetryableError:
    """Return the error of a transfer that `Suspects.ended` has found to be the cause."""
    return RetryableError(
        "Service Bus ended the link again while nothing but this transfer was in flight, and has accepted others "
        f"in between: {error}",
        refused=True,
        ended_alone=True,
    )


@dataclass(eq=False, slots=True)
class _Waiting:
    among: int
    admitted: asyncio.Future[None]


class SuspectBatches:
    """Admits one group of suspects at a time; the next one once all of it has left.

    The less suspicious go first: of a hundred in flight, fifty and fifty, then the half of those fifty that ended
    the link, and so on. So the sound ones are through after two groups, and the cause is alone after seven.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._admitted = 0
        self._is_due = False

    @asynccontextmanager
    async def turn(self, among: int, ends: float) -> AsyncIterator[None]:
        """Wait until the group of a transfer is admitted, one of `among` transfers of which one is the cause.

        Raises:
            RetryableError: It was not by the loop's time `ends`.
        """
        mine = _Waiting(among, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        self._look_soon()
        try:
            async with asyncio.timeout_at(ends):
                await mine.admitted
        except BaseException as error:
            if mine.admitted.done() and not mine.admitted.cancelled():
                self._leave()
            if isinstance(error, TimeoutError):
                raise RetryableError(
                    "The link of this transfer has ended, and the attempt was over before it could be sent apart "
                    "from the others that were in flight: the next attempt goes on from here."
                ) from error
            raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        self._admitted -= 1
        self._look_soon()

    def _look_soon(self) -> None:
        # All whose link has ended come in the same turn of the loop.
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._is_due = False
        self._waiting = [each for each in self._waiting if not each.admitted.done()]
        if self._admitted or not self._waiting:
            return
        among = max(each.among for each in self._waiting)
        group = [each for each in self._waiting if each.among == among][: max(1, among // 2)]
        self._admitted = len(group)
        for each in group:
            each.admitted.set_result(None)


def take_note(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task, which is raised to those who wait for it, if anyone still does."""
    if not task.cancelled():
        task.exception()
