"""The ports of the pipeline: a source of events, a publisher, and a quarantine.

Each has an adapter for Azure and one in memory for tests; `tests/contracts` holds what both must do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from relay.core.deadline import Deadline
from relay.core.events import Event, EventName, Received, Rejected
from relay.core.fence import Clearance
from relay.core.holds import Holds, Order
from relay.core.place import Place
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge

BatchT = TypeVar("BatchT", contravariant=True)


class Source(Protocol[BatchT]):
    """An outbox, whose documents come in batches, and which knows its checkpoint."""

    async def read(self, batch: BatchT, /) -> Received:
        """Read the events of a batch, in commit order. Raises SourceError if it cannot be read."""

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        """Return the positions of documents that the checkpoint has passed.

        Each was published or set aside by an owner.

        An item for which that is unknown is not among them.

        Raises:
            SourceError: The checkpoint cannot be read.
        """


class Publisher(Protocol):
    """Where events go."""

    @property
    def destination(self) -> str:
        """The name of the topic."""

    async def publish(
        self,
        events: Mapping[str, Sequence[Event]],
        /,
        *,
        judge: Judge = ...,
        clearance: Clearance = ...,
        deadline: Deadline | None = ...,
        isolate: bool = ...,
        rotate: int = ...,
    ) -> list[KeyOutcome]:
        """Publish every partition key's events in order; a key that fails leaves the others to finish.

        Args:
            events: Events that were not accepted before, by partition key, each sequence in commit order.
            judge: Decides what becomes of an event that is refused.
            clearance: Until when they may be sent.
            deadline: When the attempt ends; None for the publisher's own limit.
            isolate: Find the one event that an error is about, although the error may pass.
            rotate: Number of failed attempts before this one: each starts where the last one may have ended.

        Returns:
            One outcome a partition key, in the order given, in which every event is counted once. A send that
            failed is in its key's outcome; it is not raised.
        """

    def has_accepted(self, event: Event, /) -> bool:
        """Return True if this publisher knows that the event was accepted before."""

    def note_set_aside(self, items: Iterable[Rejected], /) -> None:
        """Record events set aside without being sent: their refusals are no longer evidence about others."""

    async def close(self) -> None:
        """Close every connection."""


class Quarantine(Protocol):
    """The store of documents that can never become messages, and of operators' orders."""

    async def holds(self) -> Holds:
        """Return the holds on events that must not be published now.

        Raises QuarantineError if they cannot be read.
        """

    def parked_here(self) -> Mapping[str, Place | None]:
        """Return the keys that this process has parked, each with the place of the event that parked it.

        A key is in it from the end of `store` until `holds` finds it released.
        """

    async def store(
        self,
        rejected: Sequence[Rejected],
        /,
        invocation_id: str,
        *,
        park: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Store rejected documents; records from an earlier attempt stay unchanged.

        Args:
            rejected: The documents, in order of arrival.
            invocation_id: Stands in the records.
            park: Whether the first document of a partition key parks the key, atomically with its record.
            check: Called right before each write; what it raises ends the storing.

        What is stored is held from then on by an order that is carried out, until `remove`: it is neither
        published after all, nor stored again once an operator has released or discarded its record.

        Raises:
            QuarantineError: It could not be written, or a parked key was released in the meantime. The invocation
                fails, and its next attempt stores or publishes the rest.
        """

    async def note_passed(self, orders: Mapping[EventName, Order], /, at: float) -> None:
        """Note in orders that are carried out that the checkpoint has passed their events.

        Args:
            orders: By event, its order as `holds` has read it. One that has been replaced meanwhile, by an
                operator or for a later version of the event, stays as it is; others may, and are noted later.
            at: The time to note, in seconds since 1970.

        Raises:
            QuarantineError: They could not be written. Nothing is lost: somebody notes it later.
        """

    async def remove(self, orders: Mapping[EventName, Order], /) -> None:
        """Remove orders, by event, as `holds` has read them.

        One that has been replaced meanwhile stays; others may, and are removed another time.

        Raises:
            QuarantineError: They could not be removed. Nothing is lost: somebody removes them later.
        """

    async def close(self) -> None:
        """Close every connection."""
