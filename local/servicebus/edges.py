"""What the broker does where the service leaves room or varies: drawn from a seed, and counted.

Each edge names its source. Without a seed the broker does what is documented, or was most often seen.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import StrEnum
from typing import Any

DEFAULT_SEED = 1


class Edge(StrEnum):
    """Behaviour that a client meets rarely, and has to withstand."""

    REJECTED_THEN_DETACHED = "rejected-then-detached"
    """An oversized transfer is rejected, then the link is detached, both with
    `amqp:link:message-size-exceeded` (log in azure-sdk-for-python issue 37916)."""
    DETACHED_WITHOUT_DISPOSITION = "detached-without-disposition"
    """It is answered by the detach alone, as Microsoft.Azure.Amqp does by itself (`ReceivingAmqpLink`)."""
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
    """A connection that idles is closed with `amqp:connection:forced` (azure-service-bus-java issue 408)."""
    IDLE_CONNECTION_CLOSED = "idle-connection-closed"
    """It is closed without a reason, which AMQP 1.0 allows (part 2, section 2.7.9)."""


class Oversized(StrEnum):
    """How an oversized transfer is answered."""

    REJECTED_THEN_DETACHED = Edge.REJECTED_THEN_DETACHED.value
    DETACHED_WITHOUT_DISPOSITION = Edge.DETACHED_WITHOUT_DISPOSITION.value
    REJECTED_ALONE = Edge.REJECTED_ALONE.value


_IDLE_CONNECTION = (Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR, Edge.IDLE_CONNECTION_CLOSED)
_IDLE_LINK = (Edge.IDLE_LINK_DETACHED_WITH_ERROR, Edge.IDLE_LINK_DETACHED, *_IDLE_CONNECTION)

_OVERSIZED = (*Oversized, Oversized.REJECTED_THEN_DETACHED)
"""What was seen of the service itself is drawn twice as often as each of the others."""


class Edges:
    """Draws what varies. With `seed` None nothing does.

    Each concern has a random stream of its own, so that how often one is asked changes nothing for the others.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self.met: Counter[Edge] = Counter()
        self._idle = random.Random(f"{seed}:idle")
        self._oversized = random.Random(f"{seed}:oversized")

    def meet(self, edge: Edge) -> None:
        """Count an edge that a client has met."""
        self.met[edge] += 1

    def oversized(self) -> Oversized:
        """Choose how the next oversized transfer is answered."""
        return Oversized.REJECTED_THEN_DETACHED if self.seed is None else self._oversized.choice(_OVERSIZED)

    def idle_link(self) -> Edge:
        """Choose what happens to a link that has carried nothing for too long: it may go with its connection."""
        return Edge.IDLE_LINK_DETACHED_WITH_ERROR if self.seed is None else self._idle.choice(_IDLE_LINK)

    def idle_connection(self) -> Edge:
        """Choose how a connection is closed that has had no links for too long."""
        if self.seed is None:
            return Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR
        return self._idle.choice(_IDLE_CONNECTION)

    def as_object(self) -> dict[str, Any]:
        """As the admin port tells it: the seed, and how often each edge was met since the broker started."""
        return {"seed": self.seed, "edges": {edge.value: count for edge, count in sorted(self.met.items())}}


def parse_seed(text: str) -> int | None:
    """Read the value of `--edges`: a whole number, or `off` for None. Raises ValueError."""
    return None if text == "off" else int(text)
