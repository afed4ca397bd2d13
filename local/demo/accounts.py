"""The accounts that the demo's writers change, and the bookings they make, planned from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from outbox_relay.outbox import DomainEntity, DomainEvent

# Strings that a careless reader or writer of JSON changes.
_TEXTS = (
    "2019-01-01T00:00:01.0000000Z",
    "2021-09-22T11:07:37.3022907+02:00",
    "/Date(1546300801000)/",
    'a "quoted" \\ line\n\u2028 №',
    "美咲 Łukasz",
)


@dataclass(frozen=True, slots=True)
class Booking:
    """An amount and the text that goes with it."""

    amount: int
    text: str


@dataclass(frozen=True)
class AccountOpened(DomainEvent):
    """The event of a new account."""

    owner: str


@dataclass(frozen=True)
class AmountBooked(DomainEvent):
    """The event of a booking, with the balance after it."""

    amount: int
    balance: int
    text: str


@dataclass
class Account(DomainEntity):
    """An account; its id is the partition key of its events."""

    owner: str
    balance: int = 0

    def created_event(self) -> AccountOpened:
        """Return the event of its creation."""
        return AccountOpened(self.owner)

    def book(self, booking: Booking) -> None:
        """Change the balance, and raise the event."""
        self.balance += booking.amount
        self.add_event(AmountBooked(booking.amount, self.balance, booking.text))


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction: an account is created or not, and receives bookings.

    Attributes:
        account_id: The account.
        owner: The owner of a new account; None if the account exists.
        bookings: What is booked, in order.
        first: The number of the first event within the account, from 1.
    """

    account_id: str
    owner: str | None
    bookings: tuple[Booking, ...]
    first: int

    @property
    def events(self) -> int:
        """The number of events that the commit raises."""
        return len(self.bookings) + (self.owner is not None)


def plan(accounts: int, events: int, batch: int, seed: int) -> list[Iterator[Commit]]:
    """Return the commits of each account, of up to `batch` events each and `events` in total.

    They are reproducible from `seed`.
    """
    share, rest = divmod(events, accounts)
    return [
        _commits(random.Random(f"{seed}-{number}"), share + (number < rest), batch) for number in range(accounts)
    ]


def _commits(rng: random.Random, events: int, batch: int) -> Iterator[Commit]:
    account_id = str(UUID(int=rng.getrandbits(128), version=4))
    owner: str | None = rng.choice(_TEXTS)
    done = 0
    while done < events:
        count = min(rng.randint(1, batch), events - done)
        bookings = tuple(
            Booking(rng.randint(-(10**9), 10**9), rng.choice(_TEXTS)) for _ in range(count - (owner is not None))
        )
        yield Commit(account_id, owner, bookings, done + 1)
        owner = None
        done += count
