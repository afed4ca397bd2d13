"""A subscriber process that holds its sessions open before anything is sent, and reports each arrival.

It uses azure-servicebus with one session receiver per key, by name. Waiting for the next available session would
add the half second that this SDK takes to accept a session, which is a cost of the consumer, not the relay's. For
the same reason it receives one message at a time (asked for more, azure-servicebus 7.15.0 waits another 200 ms
after the first) and deletes on receipt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from local.stack.environment import TOPIC
from local.stack.parts import Part
from outbox_relay.emulators.process import announce, heed_signals, until_stopped
from outbox_relay.inbox import connect
from outbox_relay.inbox.event_loop import end_tasks

SUBSCRIPTION = "all"
_PREFETCH = 200
_WAIT_S = 30.0
_OPENED_AT_A_TIME = 8

# Sessions are locked for a minute; each lock is renewed twice in that time, one after another.
_RENEWED_WITHIN_S = 25.0


class Subscriber:
    """The subscribing process, as the benchmark sees it.

    Attributes:
        arrivals: Seconds of the monotonic clock, which all processes of a machine share, by message id.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._changed = asyncio.Event()
        self.arrivals: dict[str, float] = {}

    @property
    def pid(self) -> int:
        """The process id."""
        return self._part.pid

    async def until_received(self, count: int, *, within_s: float) -> None:
        """Wait until that many different messages have arrived.

        Raises:
            TimeoutError: They have not in time.
            PartFailed: The process ended.
        """
        async with asyncio.timeout(within_s):
            while len(self.arrivals) < count:
                if self._part.output.at_eof():
                    raise self._part.failure(f"ended after {len(self.arrivals)} of {count} messages")
                self._changed.clear()
                await self._changed.wait()

    async def read(self) -> None:
        """Read the process's reports until it ends."""
        async for line in self._part.output:
            at, _, identifier = line.decode().rstrip("\n").partition(" ")
            self.arrivals.setdefault(identifier, float(at))
            self._changed.set()
        self._changed.set()


@asynccontextmanager
async def running_subscriber(connection_string: str, keys: Sequence[str], logs: Path) -> AsyncIterator[Subscriber]:
    """A subscriber with an open receiver for each key."""
    part = await Part.start(
        *("subscriber", "verification.bench.subscriber", *keys),
        log=logs / "subscriber.log",
        environment={"SERVICEBUS": connection_string},
    )
    subscriber = Subscriber(part)
    reading = asyncio.create_task(subscriber.read())
    try:
        yield subscriber
    finally:
        await part.stop()
        await reading


async def _open(client: ServiceBusClient, key: str, turn: asyncio.Semaphore) -> ServiceBusReceiver:
    receiver = client.get_subscription_receiver(
        TOPIC,
        SUBSCRIPTION,
        session_id=key,
        receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
        prefetch_count=_PREFETCH,
    )
    async with turn:
        await receiver.__aenter__()
    return receiver


async def _report(receiver: ServiceBusReceiver) -> None:
    while True:
        try:
            messages = await receiver.receive_messages(max_message_count=1, max_wait_time=_WAIT_S)
        except OperationTimeoutError:
            continue
        at = time.monotonic()
        for message in messages:
            os.write(sys.stdout.fileno(), f"{at:.6f} {message.message_id}\n".encode())


async def _keep_locks(receivers: Sequence[ServiceBusReceiver]) -> None:
    while True:
        for receiver in receivers:
            await receiver.session.renew_lock()
            await asyncio.sleep(_RENEWED_WITHIN_S / len(receivers))


async def _subscribe(connection_string: str, keys: Sequence[str]) -> None:
    heed_signals()
    async with connect(connection_string) as client:
        turn = asyncio.Semaphore(_OPENED_AT_A_TIME)
        receivers = await asyncio.gather(*(_open(client, key, turn) for key in keys))
        # The first renewal opens its own link, which must not delay a measured message.
        for receiver in receivers:
            await receiver.session.renew_lock()
        tasks = [asyncio.create_task(_report(receiver)) for receiver in receivers]
        tasks.append(asyncio.create_task(_keep_locks(receivers)))
        announce({"part": "subscriber"})
        stopping = asyncio.create_task(until_stopped(exit_with_stdin=True))
        try:
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(tasks)
            await asyncio.gather(*(receiver.close() for receiver in receivers), return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def main() -> None:
    """`python -m verification.bench.subscriber KEY...`, with the connection string in SERVICEBUS."""
    parser = argparse.ArgumentParser(prog="python -m verification.bench.subscriber", description=__doc__)
    parser.add_argument("keys", nargs="+")
    asyncio.run(_subscribe(os.environ["SERVICEBUS"], parser.parse_args().keys))


if __name__ == "__main__":
    main()
