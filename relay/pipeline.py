"""The whole way of a batch of changes: select, group, publish, quarantine, outcome."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable

from relay import messages
from relay.attempt import attempting
from relay.errors import PublishError
from relay.events import Document, DomainEvent, InvalidEvent
from relay.outcome import Outcome
from relay.publisher import PartitionOutcome, Publisher
from relay.quarantine import Quarantine, Quarantined
from relay.selection import Selection
from relay.settings import Settings


class Relay:
    """Relays batches of changed documents; one for a process, used by its invocations concurrently."""

    def __init__(self, publisher: Publisher, quarantine: Quarantine, event_type: str) -> None:
        self._publisher = publisher
        self._quarantine = quarantine
        self._event_type = event_type

    @classmethod
    def from_settings(cls, settings: Settings) -> Relay:
        """Put the relay together. Nothing is connected until the first event needs it."""
        publisher = Publisher.from_settings(settings, messages.encoder(settings.cloudevents_source))
        return cls(publisher, Quarantine(settings), settings.event_type)

    async def handle(
        self, documents: Iterable[Document | None], invocation_id: str, retry_count: int = 0
    ) -> Outcome:
        """Relay one batch of changes, in the order of the change feed.

        Args:
            documents: What the trigger delivered; documents of another type are ignored, and counted.
            invocation_id: Stands in the log and in quarantine records.
            retry_count: How many attempts at these documents have failed before.

        Returns:
            The outcome, once every domain event was accepted by Service Bus or stored in quarantine.

        Raises:
            PublishError: Some events were not accepted. The others were; a retry sends only the rest.
            QuarantineError: A document could not be stored in quarantine.
        """
        with attempting(invocation_id, retry_count, self._publisher.topic) as attempt:
            selection = select(documents, self._event_type)
            attempt.received(selection, self._publisher.has_accepted)
            partitions = group(selection.events)
            published = await self._publisher.publish(partitions)
            rejected = in_order_of_arrival(selection, published)
            outcome = Outcome.of(selection.ignored, published, rejected)
            attempt.settled(outcome)
            await self._quarantine.store(rejected, invocation_id)
            if outcome.failed:
                raise PublishError(outcome.explain())
            return outcome

    async def close(self) -> None:
        """Close every connection; no invocation may be under way."""
        await self._publisher.close()
        await self._quarantine.close()


def select(documents: Iterable[Document | None], event_type: str) -> Selection:
    """Pick the documents of `event_type`, in their order, and check each."""
    selection = Selection()
    for wrapped in documents:
        # The trigger's Document is a UserDict, every look into which is two calls: look into its dict instead.
        document: Document | None = wrapped.data if isinstance(wrapped, UserDict) else wrapped
        if document is None or document.get("type") != event_type:
            selection.ignored += 1
            continue
        try:
            selection.events.append(DomainEvent.from_document(document))
        except InvalidEvent as invalid:
            selection.rejected.append(Quarantined(document, invalid.reason, invalid.detail))
            selection.rejected_after.append(len(selection.events))
    return selection


def group(events: Iterable[DomainEvent]) -> dict[str, list[DomainEvent]]:
    """Events by partition key; within each key, the order of the change feed."""
    partitions: dict[str, list[DomainEvent]] = {}
    for event in events:
        partitions.setdefault(event.partition_key, []).append(event)
    return partitions


def in_order_of_arrival(selection: Selection, published: list[PartitionOutcome]) -> list[Quarantined]:
    """What was rejected before and by publishing, in the one order in which it is to be released again."""
    refused = [rejected for partition in published for rejected in partition.rejected]
    if not refused:
        return selection.rejected
    places = {id(event): place for place, event in enumerate(selection.events)}
    arrived = [
        ((before, 0), item) for before, item in zip(selection.rejected_after, selection.rejected, strict=True)
    ]
    arrived += [
        ((places[id(each.event)], 1), Quarantined(each.event.document, each.reason, each.detail))
        for each in refused
    ]
    return [item for _, item in sorted(arrived, key=lambda pair: pair[0])]
