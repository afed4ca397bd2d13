"""The whole way of a batch of changes: select, group, publish, quarantine, outcome."""

from __future__ import annotations

import logging
from collections import Counter, UserDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from relay import messages
from relay.errors import PublishError
from relay.events import Document, DomainEvent, InvalidEvent
from relay.publisher import PartitionOutcome, Publisher
from relay.quarantine import Quarantine, Quarantined
from relay.settings import Settings

# An error names this many of the partitions that failed, and counts the others.
_NAMED_PARTITIONS = 10

logger = logging.getLogger(__name__)


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

    async def handle(self, documents: Iterable[Document | None], invocation_id: str) -> Outcome:
        """Relay one batch of changes, in the order of the change feed.

        Args:
            documents: What the trigger delivered; documents of another type are ignored, and counted.
            invocation_id: Stands in the log and in quarantine records.

        Returns:
            The outcome, once every domain event was accepted by Service Bus or stored in quarantine.

        Raises:
            PublishError: Some events were not accepted. The others were; a retry sends only the rest.
            QuarantineError: A document could not be stored in quarantine.
        """
        selection = select(documents, self._event_type)
        partitions = group(selection.events)
        published = await self._publisher.publish(partitions)
        rejected = in_order_of_arrival(selection, published)
        await self._quarantine.store(rejected, invocation_id)
        outcome = Outcome.of(selection, published, rejected)
        outcome.log(invocation_id)
        if outcome.failed:
            raise PublishError(outcome.explain())
        return outcome

    async def close(self) -> None:
        """Close every connection; no invocation may be under way."""
        await self._publisher.close()
        await self._quarantine.close()


@dataclass(slots=True)
class Selection:
    """What a batch of changes holds: events to publish, documents to set aside, and others, counted.

    `rejected_after` says of each document in `rejected` how many of the events came before it.
    """

    events: list[DomainEvent] = field(default_factory=list)
    rejected: list[Quarantined] = field(default_factory=list)
    rejected_after: list[int] = field(default_factory=list)
    ignored: int = 0


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one invocation's documents. Every one of them is counted exactly once.

    Attributes:
        ignored: Documents of another type.
        published: Events Service Bus accepted now.
        remembered: Events it had accepted in an earlier attempt.
        quarantined: Documents set aside, by reason.
        unsent: Events not accepted; more than none only if `failed` is not empty.
        partitions: Partition keys among the events.
        sends: Transfers accepted.
        failed: The partitions that did not go through.
    """

    ignored: int
    published: int
    remembered: int
    quarantined: Counter[str]
    unsent: int
    partitions: int
    sends: int
    failed: list[PartitionOutcome]

    @classmethod
    def of(cls, selection: Selection, published: list[PartitionOutcome], rejected: list[Quarantined]) -> Outcome:
        """Add up the parts."""
        return cls(
            ignored=selection.ignored,
            published=sum(partition.published for partition in published),
            remembered=sum(partition.remembered for partition in published),
            quarantined=Counter(str(item.reason) for item in rejected),
            unsent=sum(partition.unsent for partition in published),
            partitions=len(published),
            sends=sum(partition.sends for partition in published),
            failed=[partition for partition in published if partition.error is not None],
        )

    def explain(self) -> str:
        """What went and what did not, for which partition keys and why."""
        lines = [
            f"{self.unsent} event(s) of {len(self.failed)} partition key(s) were not accepted by Service Bus; "
            f"{self.published + self.remembered} event(s) of this invocation were. "
            "The retry policy sends the rest again."
        ]
        lines += [
            f"  {partition.partition_key!r}: {partition.unsent} event(s): {partition.error}"
            for partition in self.failed[:_NAMED_PARTITIONS]
        ]
        if len(self.failed) > _NAMED_PARTITIONS:
            lines.append(f"  and {len(self.failed) - _NAMED_PARTITIONS} more partition key(s)")
        return "\n".join(lines)

    def log(self, invocation_id: str) -> None:
        """One summary line an invocation, and one a reason for quarantine; never a payload."""
        fields = {
            "action": "relay_batch",
            "invocation_id": invocation_id,
            "ignored": self.ignored,
            "published": self.published,
            "remembered": self.remembered,
            "quarantined": self.quarantined.total(),
            "unsent": self.unsent,
            "partitions": self.partitions,
            "sends": self.sends,
        }
        logger.info(
            "published %d event(s) of %d partition key(s) in %d send(s); ignored %d, remembered %d, "
            "quarantined %d, unsent %d",
            self.published,
            self.partitions,
            self.sends,
            self.ignored,
            self.remembered,
            self.quarantined.total(),
            self.unsent,
            extra=fields,
        )
        for reason, count in self.quarantined.items():
            logger.warning(
                "quarantined %d document(s): %s",
                count,
                reason,
                extra={
                    "action": "quarantine",
                    "invocation_id": invocation_id,
                    "reason": reason,
                    "count": count,
                },
            )
