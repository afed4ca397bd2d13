"""A subscriber in a process of its own: sessions held open before anything is sent, and when each message came.

It is azure-servicebus with one session receiver for every key, by name. Waiting for the next available session
instead would add what a consumer pays for taking a session up (half a second, mostly the SDK's own), which is not
the relay's. For the same reason messages are taken one at a time (asked for more, the SDK, 7.15.0, waits 200 ms
for them after the first) and deleted on receipt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from local.demo.receiver import end_tasks, subscriber_client
from local.stack.environment import TOPIC
from local.stack.parts import ROOT
from outbox_emulators.process import READY, announce, heed_signals, until_stopped

_SUBSCRIPTION = "all"
_PREFETCH = 200
_WAIT_S = 30.0
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_OPENED_AT_A_TIME = 8

# Sessions are locked for a minute; each is renewed twice in that time, one after another.
_RENEWED_WITHIN_S = 25.0


class SubscriberEnded(Exception):
    """The subscriber did not start, or ended by itself."""


class Subscriber:
    """The subscribing process as the benchmark sees it; it ends with this process, whose pipe it reads.

    Attributes:
        arrivals: Seconds of the monotonic clock, which all processes of a machine share, by message id.
        repetitions: Messages that came more than once.
    """

    def __init__(self, connection_string: str, keys: Sequence[str]) -> None:
        self._connection_string = connection_string
        self._keys = keys
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]
        self._news = asyncio.Event()
        self.arrivals: dict[str, float] = {}
        self.repetitions = 0

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "bench.subscriber"),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for line in (self._connection_string, " ".join(self._keys)):
            self._process.stdin.write(line.encode() + b"\n")
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                line = (await self._process.stdout.readline()).decode()
            if not line.startswith(READY):
                raise SubscriberEnded("the subscriber did not start")
        except BaseException:
            await self._end()
            raise
        self._reading = asyncio.create_task(self._read(self._process.stdout))
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end()
        await self._reading

    async def until_received(self, count: int, *, within_s: float) -> None:
        """Wait until so many different messages have come.

        Raises:
            TimeoutError: They have not in time.
            SubscriberEnded: They never will.
        """
        async with asyncio.timeout(within_s):
            while len(self.arrivals) < count:
                if self._reading.done():
                    raise SubscriberEnded(f"the subscriber ended after {len(self.arrivals)} of {count} messages")
                self._news.clear()
                await self._news.wait()

    async def _read(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            at, _, identifier = line.decode().rstrip("\n").partition(" ")
            if identifier in self.arrivals:
                self.repetitions += 1
            else:
                self.arrivals[identifier] = float(at)
            self._news.set()
        self._news.set()

    async def _end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def _open(client: ServiceBusClient, key: str, turn: asyncio.Semaphore) -> ServiceBusReceiver:
    receiver = client.get_subscription_receiver(
        TOPIC,
        _SUBSCRIPTION,
        session_id=key,
        receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
        prefetch_count=_PREFETCH,
    )
    async with turn:
        await receiver.__aenter__()
    return receiver


async def _tell(receiver: ServiceBusReceiver) -> None:
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
    async with subscriber_client(connection_string) as client:
        turn = asyncio.Semaphore(_OPENED_AT_A_TIME)
        receivers = await asyncio.gather(*(_open(client, key, turn) for key in keys))
        # The first renewal opens a link of its own: before the start, that is nobody's latency.
        for receiver in receivers:
            await receiver.session.renew_lock()
        tasks = [asyncio.create_task(_tell(receiver)) for receiver in receivers]
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


def main() -> int:
    """`python -m bench.subscriber`: connection string and keys on the first two lines of standard input."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    connection_string, keys = _line(), _line().split()
    asyncio.run(_subscribe(connection_string, keys))
    return 0


def _line() -> str:
    """One line of standard input, nothing read beyond it: the rest is watched by its file descriptor."""
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            break
        text += byte
    return text.decode().strip()


if __name__ == "__main__":
    sys.exit(main())
