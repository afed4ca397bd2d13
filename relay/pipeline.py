"""The whole way of a batch: read, plan, publish, judge, account, quarantine."""

from __future__ import annotations

from typing import Generic, TypeVar

from relay.brake import Brake
from relay.errors import PublishError
from relay.fence import Fence
from relay.holds import Holds
from relay.poison import conclude, plan
from relay.ports import Publisher, Quarantine, Source
from relay.results import Outcome
from relay.settings import OnPoison
from relay.telemetry.attempt import attempting

# From this retry on, a temporary error is traced to the one event that causes it.
_ISOLATE_FROM = 3

# From this one on, half a minute later, a refusal is the event's own fault, even if nothing else was accepted.
_LASTING_FROM = 5

BatchT = TypeVar("BatchT")


class Relay(Generic[BatchT]):
    """Relays batches of a source; one for a process, used by its invocations concurrently."""

    def __init__(
        self,
        source: Source[BatchT],
        publisher: Publisher,
        quarantine: Quarantine,
        *,
        duplicate_window_s: float,
        on_poison: OnPoison = OnPoison.SKIP,
    ) -> None:
        self._source = source
        self._publisher = publisher
        self._quarantine = quarantine
        self._fence = Fence(duplicate_window_s, source.settled)
        self._on_poison = on_poison
        self._brake = Brake()

    async def handle(self, batch: BatchT, invocation_id: str, retry_count: int = 0) -> Outcome:
        """Relay one batch, in the order in which it was committed.

        Raising is the mechanism: the trigger's retry policy withholds the checkpoint and delivers the same batch
        again. So everything that is not accounted for here comes back.

        Args:
            batch: What the source delivered; documents of another type are ignored, and counted.
            invocation_id: Stands in the log and in quarantine records.
            retry_count: How many attempts at this batch have failed before.

        Returns:
            The outcome, once every domain event was accepted by Service Bus or stored in quarantine.

        Raises:
            SourceError: The batch cannot be read, or its old events could not be compared with the checkpoint.
            QuarantineError: The quarantine could not be read, or a document could not be stored in it.
            PublishError: Some events were not accepted. The others were; a retry sends only the rest.
            AccountingError: A document is not accounted for.
        """
        with attempting(invocation_id, retry_count, self._publisher.destination) as attempt:
            received = self._source.read(batch)
            attempt.received(received, self._publisher.has_accepted)
            holds = await self._holds(retry_count)
            planned = plan(received, holds, self._on_poison, self._publisher.has_accepted)
            outcomes = await self._publisher.publish(
                planned.to_publish,
                clearance=await self._fence.clear(received),
                isolate=retry_count >= _ISOLATE_FROM,
                lasting=retry_count >= _LASTING_FROM,
                stop_at_rejection=self._on_poison is not OnPoison.SKIP,
            )
            self._brake.judge(outcomes)
            rejected = conclude(planned, outcomes, self._on_poison)
            outcome = Outcome.of(received, outcomes, rejected)
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
