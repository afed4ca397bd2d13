"""The whole way of a batch: read, compare, judge, publish, account, set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from relay.config.settings import ATTEMPT_MARGIN_S, ATTEMPT_TIMEOUT_S, OnPoison
from relay.core import verdict
from relay.core.deadline import Deadline, within
from relay.core.errors import PublishError, QuarantineError, SourceError
from relay.core.events import Received, Rejected
from relay.core.fence import Clearance, Fence
from relay.core.orders import Orders
from relay.core.plan import combine, plan
from relay.core.ports import Publisher, Quarantine, Source
from relay.core.results import Outcome
from relay.telemetry.attempt import RelayTelemetry
from relay.telemetry.stream import as_logged

# Maximum seconds for storing documents that are set aside, after the attempt. The rest of the margin is for the
# comparison with the checkpoint.
_STORING_S = ATTEMPT_MARGIN_S / 2

BatchT = TypeVar("BatchT")


class Relay(Generic[BatchT]):
    """Relays the batches of one source. Create one per process; invocations may call it concurrently."""

    def __init__(
        self,
        source: Source[BatchT],
        publisher: Publisher,
        quarantine: Quarantine,
        *,
        duplicate_window_s: float,
        on_poison: OnPoison = OnPoison.SKIP,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        telemetry: RelayTelemetry | None = None,
    ) -> None:
        self._source = source
        self._publisher = publisher
        self._quarantine = quarantine
        self._fence = Fence(duplicate_window_s, source.passed_positions)
        self._on_poison = on_poison
        self._judge = verdict.Judge(on_poison)
        self._orders = Orders(quarantine, on_poison, source.passed_positions)
        self._attempt_timeout_s = attempt_timeout_s
        self.telemetry = RelayTelemetry() if telemetry is None else telemetry

    async def handle(self, batch: BatchT, invocation_id: str, retry_count: int = 0) -> Outcome:
        """Relay one batch, in the order in which it was committed.

        Raising is the mechanism: the trigger's retry policy withholds the checkpoint and delivers the same batch
        again. So everything that is not accounted for here comes back.

        Args:
            batch: The documents from the source; those of another type are ignored, and counted.
            invocation_id: Stands in the log and in quarantine records.
            retry_count: Number of failed attempts at this batch before.

        Returns:
            The outcome, once every domain event was accepted by Service Bus or stored in quarantine.

        Raises:
            SourceError: The batch, or the checkpoint with which old events have to be compared, cannot be read.
            QuarantineError: The quarantine could not be read, or a document could not be stored in it.
            PublishError: Some events were not accepted. The others were; a retry sends only the rest.
            AccountingError: A document is not accounted for.
            StaleClearanceError: The process was stopped before it could set something aside.
            LostOwnershipError: The process was stopped, and another process may own the batch by now.
        """
        deadline = Deadline.after(self._attempt_timeout_s)
        with self.telemetry.attempting(invocation_id, retry_count, self._publisher.destination) as attempt:
            received = await self._source.read(batch)
            attempt.received(received, self._publisher.has_accepted)
            holds = await self._orders.for_attempt(received, invocation_id, retry_count)
            tried = self._orders.may_have_been_tried(invocation_id)
            clearance = await self._fence.clear(received, compare=tried)
            if clearance.passed and self._on_poison is OnPoison.PARK:
                # An event that the checkpoint has passed may have parked its key since the holds were read.
                holds = await self._orders.reread(received)
            planned = plan(received, self._on_poison, holds, clearance.passed, self._publisher.has_accepted)
            for set_aside in planned.set_aside.values():
                self._publisher.note_set_aside(set_aside)
            outcomes = await self._publisher.publish(
                planned.to_publish,
                judge=self._judge,
                clearance=clearance,
                deadline=deadline,
                isolate=verdict.isolates(retry_count),
                rotate=retry_count,
            )
            outcome = combine(planned, received, outcomes)
            if outcome.set_aside:
                clearance = await self._clear_storing(outcome.set_aside, received)
                outcome = outcome.without(clearance.passed)
            attempt.record_outcome(outcome)
            if outcome.set_aside:
                async with within(_STORING_S, QuarantineError, "quarantining what is set aside"):
                    await self._orders.store(outcome.set_aside, invocation_id, clearance.check_storing)
            if outcome.failed:
                raise PublishError(outcome.explain().about(as_logged()))
            return outcome

    async def _clear_storing(self, set_aside: Sequence[Rejected], received: Received) -> Clearance:
        try:
            return await self._fence.clear_storing(set_aside, received.owned)
        except SourceError as error:
            raise QuarantineError(f"{len(set_aside)} document(s) must be quarantined, but {error}") from error

    async def close(self) -> None:
        """Close every connection; no invocation may be under way."""
        try:
            await self._publisher.close()
        finally:
            await self._quarantine.close()
