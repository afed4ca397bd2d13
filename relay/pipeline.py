"""The whole way of a batch of changes: select, plan, publish, judge, quarantine, outcome."""

from __future__ import annotations

from collections.abc import Iterable

from relay.brake import Brake
from relay.cosmos.changes import ChangeBatch
from relay.cosmos.containers import Containers
from relay.cosmos.quarantine import Holds, Quarantine
from relay.errors import PublishError
from relay.events import Document
from relay.fence import Fence
from relay.poison import conclude, plan
from relay.results import Outcome
from relay.selection import select
from relay.servicebus import messages
from relay.servicebus.publisher import Publisher
from relay.settings import OnPoison, Settings
from relay.telemetry.attempt import attempting

# From this attempt on, an error that may pass is traced to the one event it is about.
_ISOLATE_FROM = 3

# And from this one on, half a minute later, a refusal is the event's own fault, whatever else was accepted.
_LASTING_FROM = 5


class Relay:
    """Relays batches of changed documents; one for a process, used by its invocations concurrently."""

    def __init__(
        self,
        publisher: Publisher,
        quarantine: Quarantine,
        fence: Fence,
        event_type: str,
        on_poison: OnPoison = OnPoison.SKIP,
    ) -> None:
        self._publisher = publisher
        self._quarantine = quarantine
        self._fence = fence
        self._event_type = event_type
        self._on_poison = on_poison
        self._brake = Brake()

    @classmethod
    def from_settings(cls, settings: Settings) -> Relay:
        """Put the relay together. Nothing is connected until the first event needs it."""
        publisher = Publisher.from_settings(settings, messages.encoder(settings.cloudevents_source))
        containers = Containers(settings)
        fence = Fence(settings.duplicate_window_s, containers.positions)
        return cls(publisher, Quarantine(settings, containers), fence, settings.event_type, settings.on_poison)

    async def handle(
        self, documents: ChangeBatch | Iterable[Document | None], invocation_id: str, retry_count: int = 0
    ) -> Outcome:
        """Relay one batch of changes, in the order of the change feed.

        To raise is the mechanism: the trigger's retry policy withholds the checkpoint and delivers the same
        documents again, so whatever is not accounted for here comes back.

        Args:
            documents: What the trigger delivered, as text or parsed; documents of another type are ignored, and
                counted.
            invocation_id: Stands in the log and in quarantine records.
            retry_count: How many attempts at these documents have failed before.

        Returns:
            The outcome, once every domain event was accepted by Service Bus or stored in quarantine.

        Raises:
            PublishError: Some events were not accepted. The others were; a retry sends only the rest.
            QuarantineError: The quarantine could not be read, or a document could not be stored in it.
            ChangesError: The text is no JSON array of documents.
            LeaseError: Old events could not be compared with the leases.
            AccountingError: A document is not accounted for.
        """
        with attempting(invocation_id, retry_count, self._publisher.topic) as attempt:
            parsed = documents.documents() if isinstance(documents, ChangeBatch) else documents
            selection = select(parsed, self._event_type)
            attempt.received(selection, self._publisher.has_accepted)
            holds = await self._holds(retry_count)
            planned = plan(selection, holds, self._on_poison, self._publisher.has_accepted)
            published = await self._publisher.publish(
                planned.partitions,
                clearance=await self._fence.clear(selection.events),
                isolate=retry_count >= _ISOLATE_FROM,
                lasting=retry_count >= _LASTING_FROM,
                stop_at_rejection=self._on_poison is not OnPoison.SKIP,
            )
            self._brake.judge(published)
            rejected = conclude(planned, published, self._on_poison)
            outcome = Outcome.of(
                documents=selection.documents,
                ignored=selection.ignored,
                published=published,
                rejected=rejected,
            )
            attempt.settled(outcome)
            await self._quarantine.store(rejected, invocation_id, park=self._on_poison is OnPoison.PARK)
            if outcome.failed:
                raise PublishError(outcome.explain())
            return outcome

    async def _holds(self, retry_count: int) -> Holds:
        """What is held back. Without parking, only a repeated attempt can meet an operator's order."""
        if self._on_poison is OnPoison.PARK or retry_count:
            return await self._quarantine.holds()
        return Holds()

    async def close(self) -> None:
        """Close every connection; no invocation may be under way."""
        await self._publisher.close()
        await self._quarantine.close()
