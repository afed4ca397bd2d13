"""Transfers that were in flight when the service ended their link, and what is known of each.

Any of them may be the cause, or none: a connection also ends when a host of the service is updated. Which one it
is shows only where each is sent by itself. The records outlive an attempt, as the sender of a key does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.errors import RetryableError
from relay.servicebus.transfers import Transfer

_KEYS_AT_MOST = 1_000
# A second end of a link that carried nothing else is no coincidence, provided that the service accepts others.
_ENDS_ALONE = 2


@dataclass(slots=True)
class _Suspicion:
    """Of one partition key, which has one transfer in flight.

    Attributes:
        ids: Its events that may be the cause.
        transfer: The ids of the transfer that the counts are about.
        in_flight: Number of transfers in flight when its link ended last.
        ends_alone: Number of times that its link ended while nothing else was in flight.
        accepted: How many transfers had been accepted when its first link ended.
    """

    ids: set[str]
    transfer: tuple[str, ...]
    in_flight: int
    ends_alone: int
    accepted: int


class Suspects:
    """The transfers that may have ended a link. The oldest are forgotten where there are too many.

    Attributes:
        accepted: How many transfers were accepted, whichever link they took.
    """

    def __init__(self) -> None:
        self.accepted = 0
        self._by_key: dict[str, _Suspicion] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def among(self, transfer: Transfer) -> int:
        """Number of transfers one of which is the cause, if this is one of them; 0 if it is not.

        A part of a suspect is by itself: the batch that it was in has been refused.
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

        It is where its link has ended more than once with nothing else in flight, while the service has accepted
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
        return found.ends_alone >= _ENDS_ALONE and self.accepted > found.accepted

    def clear(self, transfer: Transfer) -> None:
        """The service has answered this transfer, so it does not end links."""
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
    """The error of a transfer that `Suspects.ended` has found to be the cause."""
    return RetryableError(
        "Service Bus ended the link again while nothing but this transfer was in flight, and has accepted others "
        f"in between: {error}",
        refused=True,
        ended_alone=True,
    )
