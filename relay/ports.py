"""What the pipeline needs of the outside: a source of events, a publisher, and a quarantine.

Each has an adapter for Azure and one in memory for tests; `tests/contracts` holds what both must do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from relay.events import Event, Received, Rejected
from relay.fence import Clearance
from relay.holds import Holds
from relay.results import KeyOutcome

BatchT = TypeVar("BatchT", contravariant=True)


class Source(Protocol[BatchT]):
    """An outbox, whose documents come in batches, and which knows its checkpoint."""

    def read(self, batch: BatchT, /) -> Received:
        """The events of a batch, in commit order.

        Raises:
            SourceError: The batch cannot be read.
        """

    async def settled(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        """The positions of the items that the checkpoint has passed: an owner has published or quarantined each.

        An item of which that is not known is not among them.

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
        clearance: Clearance = ...,
        isolate: bool = ...,
        stop_at_rejection: bool = ...,
        lasting: bool = ...,
    ) -> list[KeyOutcome]:
        """Publish every partition key's events in order; a key that fails leaves the others to finish.

        Args:
            events: Events by partition key, each sequence in commit order.
            clearance: Which of them may be sent, and until when.
            isolate: Find the one event that an error is about, although the error may pass.
            stop_at_rejection: Hold back what follows a rejected event of the same key.
            lasting: Take a refusal for the event's own fault, as attempts have failed for long enough.

        Returns:
            One outcome a partition key, in the order given, in which every event is counted once. A send that
            failed is in its key's outcome; it is not raised.
        """

    def has_accepted(self, event: Event, /) -> bool:
        """Whether this publisher knows that the event was accepted before."""

    async def close(self) -> None:
        """Close every connection."""


class Quarantine(Protocol):
    """Where documents are kept that can never become messages, and what operators have ordered."""

    async def holds(self) -> Holds:
        """What must not be published now.

        Raises:
            QuarantineError: It could not be read. Nothing was published; the next attempt asks again.
        """

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, *, park: bool) -> None:
        """Store what was rejected; what is there already from an earlier attempt stays as it is.

        Args:
            rejected: The documents, in order of arrival.
            invocation_id: Stands in the records.
            park: Whether the first document of a partition key parks the key, atomically with its record.

        An order to set an event aside is removed once its record (`Reason.SET_ASIDE`) is stored.

        Raises:
            QuarantineError: It could not be written, or a parked key was released in the meantime. The invocation
                fails, and its next attempt stores or publishes the rest.
        """

    async def close(self) -> None:
        """Close every connection."""
