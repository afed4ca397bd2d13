"""Completes the messages of a session in groups, while their successors are handled.

Each completion is a request to the broker, and an answer. The SDK (7.15.0) has none for several messages, but its
link has: AMQP's disposition takes a range of deliveries, and Microsoft's own library for .NET sends such ranges.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from inbox.cancellation import end_tasks

_GATHER_S = 0.05


class Answered(Protocol):
    """Awaits an answer of the broker, for a limited time."""

    async def __call__(self, work: Coroutine[Any, Any, None], what: str, /) -> None: ...


class Completions:
    """The completions of one session, in order. Nobody else may read from its link while some are under way.

    A message is completed soon after it was added, together with those that were added meanwhile; at once if `all`
    is called.

    Args:
        receiver: Of the session; open.
        answered: Limits the time of each request.
    """

    def __init__(self, receiver: ServiceBusReceiver, answered: Answered) -> None:
        self._receiver = receiver
        self._answered = answered
        self._waiting: list[ServiceBusReceivedMessage] = []
        self._completing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def add(self, received: ServiceBusReceivedMessage) -> None:
        """Complete a message soon. Raises as `check`."""
        self.check()
        self._waiting.append(received)
        if self._completing is None:
            self._completing = asyncio.create_task(self._complete())

    def check(self) -> None:
        """Raise the error with which an earlier completion has failed: the session is lost."""
        if self._completing is not None and self._completing.done():
            self._completing.result()
            self._completing = None

    async def all(self) -> None:
        """Wait until everything added is completed.

        Raises:
            Exception: As `check`.
        """
        if self._completing is None:
            return
        self._hurry.set()
        try:
            await asyncio.wait({self._completing})
        finally:
            self._hurry.clear()
        self.check()

    async def stop(self) -> None:
        """Give up what is under way."""
        if self._completing is not None:
            await end_tasks([self._completing])

    async def _complete(self) -> None:
        while self._waiting:
            if not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GATHER_S):
                        await self._hurry.wait()
            group, self._waiting = self._waiting, []
            await self._answered(_complete(self._receiver, group), "Completing messages")


def arrived(receiver: Any) -> int:
    """Return the number of messages that the SDK has read from the connection and not handed out."""
    client = receiver._handler
    return 0 if client is None else int(client._received_messages.qsize())


async def _complete(receiver: ServiceBusReceiver, group: Sequence[ServiceBusReceivedMessage]) -> None:
    for run in _runs(group):
        if len(run) == 1:
            await receiver.complete_message(run[0])
        else:
            await _complete_run(receiver, run)


def _runs(group: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the messages in groups, divided where their deliveries do not follow each other on the link."""
    run = [group[0]]
    for each in group[1:]:
        if each._delivery_id != run[-1]._delivery_id + 1:
            yield run
            run = []
        run.append(each)
    yield run


async def _complete_run(receiver: Any, run: Sequence[Any]) -> None:
    """Complete several messages at a time, where `ServiceBusReceiver.complete_message` completes one.

    Without its second attempt on the management link: if the first one fails, the session is lost.
    """
    receiver._check_live()
    client, last = receiver._handler, run[-1]
    deliveries = run[0]._delivery_id, last._delivery_id
    settle = partial(client.settle_messages_async, deliveries, last._delivery_tag, "accepted", await_outcome=True)
    await receiver._do_retryable_operation(settle)
    # The SDK itself forgets only the last one.
    client._link._received_delivery_tags.difference_update(each._delivery_tag for each in run)
