"""The broker's behaviour where the service varies or is not specified: chosen by a seed, and counted.

Each edge names its source. Without a seed the broker does what is documented or was most often observed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DEFAULT_SEED = 1


class Edge(StrEnum):
    """Behaviour that a client meets rarely, and must withstand."""

    REJECTED_THEN_DETACHED = "rejected-then-detached"
    """An oversized transfer is rejected, then the link is detached, both with
    `amqp:link:message-size-exceeded` (log in azure-sdk-for-python issue 37916)."""
    DETACHED_WITHOUT_DISPOSITION = "detached-without-disposition"
    """It is answered only by the detach, as Microsoft.Azure.Amqp does by default (`ReceivingAmqpLink`)."""
    REJECTED_ALONE = "rejected-alone"
    """It is rejected and the link stays (log in azure-event-hubs-python issue 106)."""
    PROPERTIES_TOO_LARGE = "properties-too-large"
    """Properties beyond their limits are answered with `amqp:internal-error` (azure-sdk-for-net issue 15325)."""
    ENTITY_NOT_FOUND_AT_TOKEN = "entity-not-found-at-token"
    """The token for an entity that is not there is answered with 404 (azure-service-bus issues 304 and 451)."""
    IDLE_LINK_DETACHED_WITH_ERROR = "idle-link-detached-with-error"
    """A link that idles is detached with `amqp:link:detach-forced` (azure-sdk-for-python issue 10127)."""
    IDLE_LINK_DETACHED = "idle-link-detached"
    """It is detached without a reason, which AMQP 1.0 allows (part 2, section 2.7.7): `error` is optional."""
    IDLE_CONNECTION_CLOSED_WITH_ERROR = "idle-connection-closed-with-error"
    """A connection without active links is closed with `amqp:connection:forced` (azure-service-bus-java issue 408,
    and azure-sdk-for-java issue 42987, whose text says that it had none)."""
    IDLE_CONNECTION_CLOSED = "idle-connection-closed"
    """It is closed without a reason, which AMQP 1.0 allows (part 2, section 2.7.9)."""
    LITTLE_CREDIT = "little-credit"
    """A sending link is granted credit for a few transfers at a time: AMQP 1.0 (part 2, 2.6.7) leaves the number
    to the receiver, and a client that goes beyond it is detached."""
    SETTLEMENT_DELAYED = "settlement-delayed"
    """The answer to a transfer or to a settlement comes late; AMQP 1.0 (part 2, 2.6.12) sets no time for it."""
    SETTLEMENT_REORDERED = "settlement-reordered"
    """Answers come in another order than what they answer, on one link (AMQP 1.0 allows it) or across links."""
    REDELIVERED = "redelivered"
    """A completion comes too late: the lock is over, and the message is delivered again, its delivery counted
    ("Message transfers, locks, and settlement", learn.microsoft.com: peek-lock is at least once)."""
    PARTITIONS_INTERLEAVED = "partitions-interleaved"
    """A message of a partitioned entity without sessions is received before an earlier one of another partition
    ("Partitioned queues and topics": order is kept for a session, `supportOrdering` does not help)."""
    DEAD_LETTERS_INTERLEAVED = "dead-letters-interleaved"
    """A dead letter is received before earlier ones, of its own session too: a dead-letter queue has no sessions,
    and order is kept for sessions alone ("Message sessions", learn.microsoft.com)."""


class Oversized(StrEnum):
    """How an oversized transfer is answered."""

    REJECTED_THEN_DETACHED = Edge.REJECTED_THEN_DETACHED.value
    DETACHED_WITHOUT_DISPOSITION = Edge.DETACHED_WITHOUT_DISPOSITION.value
    REJECTED_ALONE = Edge.REJECTED_ALONE.value


SEND_CREDIT = 1000
"""The credit that the service grants a sending link (seen in frame logs of azure-sdk-for-python issue 37916)."""

_LITTLE_CREDIT = (1, 3, 20)

_IDLE_CONNECTION = (Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR, Edge.IDLE_CONNECTION_CLOSED)
_IDLE_LINK = (Edge.IDLE_LINK_DETACHED_WITH_ERROR, Edge.IDLE_LINK_DETACHED)

_OVERSIZED = (*Oversized, Oversized.REJECTED_THEN_DETACHED)
"""Behaviour that was seen on the service itself is chosen twice as often as each of the others."""


@dataclass(frozen=True, slots=True)
class Odds:
    """The frequency of each behaviour.

    `delayed` is the share of answers that come late, by up to `longest_delay_ms`. `redelivered` is the share of
    completions that come too late, of those that come `slow_ms` milliseconds or more after their lock began.
    `little_credit` is the share of sending links that are granted credit for a few transfers at a time.
    """

    delayed: float = 1 / 50
    longest_delay_ms: int = 25
    redelivered: float = 1 / 200
    slow_ms: int = 100
    little_credit: float = 1 / 2


ODDS = Odds()


class OutstandingAnswer:
    """A delayed answer, compared by identity."""


class Edges:
    """Draws the behaviour that varies. With `seed` None, none does.

    `outstanding` are the delayed answers of all links, in the order of what they answer.

    Each concern has a random stream of its own, so that draws for one do not change those for the others.
    """

    def __init__(self, seed: int | None = None, odds: Odds = ODDS) -> None:
        self.seed = seed
        self.odds = odds
        self.met: Counter[Edge] = Counter()
        self.outstanding: dict[OutstandingAnswer, None] = {}
        self._idle = random.Random(f"{seed}:idle")
        self._settlement = random.Random(f"{seed}:settlement")
        self._credit = random.Random(f"{seed}:credit")
        self._redelivery = random.Random(f"{seed}:lock")
        self.partitions = random.Random(f"{seed}:partitions")
        self.dead_letters = random.Random(f"{seed}:dead-letters")
        self._oversized = random.Random(f"{seed}:oversized")

    @property
    def varies(self) -> bool:
        """True if anything is drawn."""
        return self.seed is not None

    def meet(self, edge: Edge) -> None:
        """Count an edge that a client has met."""
        self.met[edge] += 1

    def oversized(self) -> Oversized:
        """Choose how the next oversized transfer is answered."""
        return Oversized.REJECTED_THEN_DETACHED if self.seed is None else self._oversized.choice(_OVERSIZED)

    def idle_link(self, *, alone: bool) -> Edge:
        """Choose how an idle link ends; its whole connection may be closed if no other link of it is in use."""
        if self.seed is None:
            return Edge.IDLE_LINK_DETACHED_WITH_ERROR
        return self._idle.choice((*_IDLE_LINK, *_IDLE_CONNECTION) if alone else _IDLE_LINK)

    def idle_connection(self) -> Edge:
        """Choose how an idle connection is closed."""
        if self.seed is None:
            return Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR
        return self._idle.choice(_IDLE_CONNECTION)

    def send_credit(self) -> int:
        """Choose how many transfers a sending link may have that were not looked at yet."""
        if self.seed is None or self._credit.random() >= self.odds.little_credit:
            return SEND_CREDIT
        self.meet(Edge.LITTLE_CREDIT)
        return self._credit.choice(_LITTLE_CREDIT)

    def settlement_delay_ms(self) -> int:
        """Choose how long an answer is delayed; most are not."""
        if self.seed is None or self._settlement.random() >= self.odds.delayed:
            return 0
        return self._settlement.randint(1, self.odds.longest_delay_ms)

    def redelivers(self) -> bool:
        """Choose whether a slow completion comes too late."""
        return self.seed is not None and self._redelivery.random() < self.odds.redelivered

    def as_object(self) -> dict[str, Any]:
        """Return what the admin port shows: the seed, and how often each edge was met since the broker started."""
        return {"seed": self.seed, "edges": {edge.value: count for edge, count in sorted(self.met.items())}}


def parse_seed(text: str) -> int | None:
    """Read the value of `--edges`: a whole number, or `off` for None. Raises ValueError."""
    return None if text == "off" else int(text)
