"""A subscriber in a process of its own that takes everything, so that the broker holds little."""

from __future__ import annotations

import argparse
import asyncio
import sys

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from local.demo.receiver import end_tasks, subscriber_client
from local.stack.environment import TOPIC
from outbox_emulators.process import announce, heed_signals, until_stopped

SUBSCRIPTION = "all"
_SESSION_WAIT_S = 2.0
_MESSAGE_WAIT_S = 0.1
_AT_ONCE = 500


async def drain(client: ServiceBusClient) -> None:
    """Receive and delete, one session after another, until cancelled.

    Nothing is counted: what has come by the time a receiver closes, unread, is deleted all the same.
    """
    while True:
        receiver = client.get_subscription_receiver(
            TOPIC,
            SUBSCRIPTION,
            session_id=NEXT_AVAILABLE_SESSION,
            receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
            max_wait_time=_SESSION_WAIT_S,
            prefetch_count=_AT_ONCE,
        )
        try:
            async with receiver:
                while await receiver.receive_messages(_AT_ONCE, max_wait_time=_MESSAGE_WAIT_S):
                    pass
        except ServiceBusError:
            continue  # no session had messages, or the broker ended this one


async def run(connection_string: str, receivers: int) -> None:
    """Drain until standard input ends, or a signal comes."""
    heed_signals()
    async with subscriber_client(connection_string) as client:
        tasks = [asyncio.create_task(drain(client)) for _ in range(receivers)]
        announce({"part": "drain"})
        stopping = asyncio.create_task(until_stopped(exit_with_stdin=True))
        try:
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def main() -> int:
    """`python -m local.soak.drain --receivers 96`, the connection string on the first line of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receivers", type=int, required=True, help="sessions received at a time")
    arguments = parser.parse_args()
    asyncio.run(run(sys.stdin.readline().strip(), arguments.receivers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
