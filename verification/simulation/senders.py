"""Senders to the simulated topic, for the real publisher: one connection of a process, with many links."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from relay.core.errors import PoisonError, RetryableError
from relay.core.events import Event
from relay.servicebus.transfers import LinkLimits, Transfer
from verification.simulation.channel import RpcChannel
from verification.simulation.topic import BusyError, RefusedError, Topic
from verification.simulation.world import Process

# So few that a key's events need several transfers.
_LIMITS = LinkLimits(batch=900, message=20_000)


class SimulatedSenders:
    """A `relay.servicebus.senders.Senders` of one process."""

    topic = "domain-events"
    size = 8

    def __init__(self, process: Process, line: RpcChannel, topic: Topic) -> None:
        self.process = process
        self.line = line
        self.destination = topic
        self._free = asyncio.Semaphore(self.size)
        # What is written to one connection arrives in that order.
        self._last_arrival_s = 0.0

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[SimulatedSender]:
        async with self._free:
            yield SimulatedSender(self)

    async def close(self) -> None:
        pass

    def arrival_s(self) -> float:
        """Return the time at which a transfer arrives that is written now."""
        now = self.process.world.now
        self._last_arrival_s = max(self._last_arrival_s, now + self.line.delay_s())
        return self._last_arrival_s


class SimulatedSender:
    """A `relay.servicebus.transfers.Sender` for one turn."""

    known_limits = _LIMITS

    def __init__(self, senders: SimulatedSenders) -> None:
        self._senders = senders

    async def limits(self, timeout_s: float) -> LinkLimits:
        return _LIMITS

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        wait_s: float | None = None,
    ) -> None:
        may_send()
        answer: asyncio.Future[None] = self._senders.process.loop.create_future()
        has_given_up = False

        def answered(error: Exception | None) -> None:
            if answer.done() or has_given_up:
                if error is None:
                    accepted_late()
            elif error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        self._write(transfer, answered)
        try:
            async with asyncio.timeout(timeout_s):
                await answer
        except TimeoutError:
            raise RetryableError(f"no answer within {timeout_s:g} s") from None
        finally:
            has_given_up = True

    def _write(self, transfer: Transfer, answered: Callable[[Exception | None], None]) -> None:
        """Put a transfer on its way. It may be lost, and so may its answer; what is late may still arrive."""
        senders, line = self._senders, self._senders.line
        process = senders.process
        entropy = process.world.entropy
        is_lost = line.loses > 0 and entropy.random() < line.loses
        arrives = not is_lost or entropy.random() < 0.5
        messages = list(transfer.messages())
        poison = [refused for each in transfer.events if (refused := _refusal_of(each))]

        def arrive() -> None:
            if not line.is_open(process):
                return
            error: Exception | None = None
            try:
                senders.destination.take(messages, process.name, poison, process.world.now)
            except RefusedError as refusal:
                error = PoisonError("refused", condition=refusal.condition)
            except BusyError:
                error = RetryableError("the namespace is throttled", refused=True, busy=True)
            if not is_lost:
                process.world.outside.after(line.delay_s(), deliver, error)

        def deliver(error: Exception | None) -> None:
            if process.is_alive and line.is_open(process):
                process.loop.call_soon(learn, error)

        def learn(error: Exception | None) -> None:
            if error is None:
                for each in messages:
                    name = process.name, each.partition_key, each.id
                    senders.destination.learned.setdefault(name, process.world.now)
            answered(error)

        if line.is_open(process) and arrives:
            process.world.outside.at(senders.arrival_s(), arrive)
        if is_lost and entropy.random() < 0.5:
            # The connection ends, and the process notices at once.
            ended = RetryableError("the connection has ended")
            process.after(line.delay_s(), answered, ended)


def _refusal_of(event: Event) -> str | None:
    """Return the condition with which the topic refuses an event. A row has no room for it but in its data."""
    refused: str | None = event.document.stored.get("refused") or event.data.get("refused")
    return refused
