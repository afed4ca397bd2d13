"""A subscriber process that receives and deletes every message, so that the broker holds few."""

from __future__ import annotations

import argparse
import asyncio
import os

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from inbox import connect
from inbox.cancellation import end_tasks
from local.stack.environment import TOPIC
from outbox_emulators.process import announce, heed_signals, until_stopped

SUBSCRIPTION = "all"
_SESSION_WAIT_S = 2.0
_MESSAGE_WAIT_S = 0.1
_PREFETCH = 500


async def drain(client: ServiceBusClient) -> None:
    """Receive and delete, one session after another, until cancelled.

    Messages are not counted: those that are prefetched but not yet read when a receiver closes are deleted too.
    """
    while True:
        receiver = client.get_subscription_receiver(
            TOPIC,
            SUBSCRIPTION,
            session_id=NEXT_AVAILABLE_SESSION,
            receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
            max_wait_time=_SESSION_WAIT_S,
            prefetch_count=_PREFETCH,
        )
        try:
            async with receiver:
                while await receiver.receive_messages(_PREFETCH, max_wait_time=_MESSAGE_WAIT_S):
                    pass
        except ServiceBusError:
            continue  # no session had messages, or the broker ended this one


async def run(connection_string: str, receivers: int) -> None:
    """Drain until standard input ends, or a signal arrives."""
    heed_signals()
    async with connect(connection_string) as client:
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


def main() -> None:
    """`python -m local.soak.drain --receivers 96`, with the connection string in SERVICEBUS."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receivers", type=int, required=True, help="sessions received at a time")
    arguments = parser.parse_args()
    asyncio.run(run(os.environ["SERVICEBUS"], arguments.receivers))


if __name__ == "__main__":
    main()
