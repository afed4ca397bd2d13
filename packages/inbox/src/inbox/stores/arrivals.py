"""Arrivals with the connection of their transaction, for the stores that open one for each block."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

from inbox.sequences import Arrival

ConnectionT = TypeVar("ConnectionT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalIn(Arrival, Generic[ConnectionT]):
    """A store's answer about a message, with the transaction that the block is. It equals the same `Arrival`.

    Attributes:
        connection: What the handler writes through is committed with the message, or not at all.
    """

    connection: ConnectionT = field(repr=False)

    @classmethod
    def of(cls, arrival: Arrival, connection: ConnectionT) -> ArrivalIn[ConnectionT]:
        """Return the same arrival with a connection."""
        return cls(**{each.name: getattr(arrival, each.name) for each in _ANSWER}, connection=connection)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Arrival):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in _ANSWER)

    def __hash__(self) -> int:
        return Arrival.__hash__(self)


_ANSWER = fields(Arrival)
