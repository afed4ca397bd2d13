"""Receive contact events into a directory, show the directory, or show missing events."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from azure.servicebus import ServiceBusReceivedMessage

from samples.contacts.consumer.changes import sequence_of
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.handler import handle
from samples.contacts.consumer.receiver import receive_sessions
from samples.contacts.settings import SettingMissing, open_servicebus

_DIRECTORY = Path(".local/directory.sqlite")


def main(argv: list[str]) -> int:
    """Run one command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m samples.contacts.consumer", description=__doc__)
    parser.add_argument("command", choices=("receive", "show", "missing"), nargs="?", default="receive")
    parser.add_argument("--directory", type=Path, default=_DIRECTORY, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--sessions", type=int, default=16, help="concurrent sessions; default: %(default)s")
    arguments = parser.parse_args(argv)
    with Directory(arguments.directory) as directory:
        if arguments.command == "show":
            for contact in directory.contacts():
                print(json.dumps(contact, ensure_ascii=False))
            return 0
        if arguments.command == "missing":
            for contact_id, sequence in directory.gaps:
                print(json.dumps({"contactId": contact_id, "sequence": sequence}))
            return 0
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        # The SDK logs every link at INFO.
        logging.getLogger("azure").setLevel(logging.WARNING)
        try:
            asyncio.run(_receive(directory, arguments.sessions))
        except SettingMissing as missing:
            print(missing, file=sys.stderr)
            return 2
    return 0


async def _receive(directory: Directory, sessions: int) -> None:
    """Receive until SIGINT or SIGTERM."""
    topic = os.environ.get("SERVICEBUS_TOPIC") or "domain-events"
    subscription = os.environ.get("SERVICEBUS_SUBSCRIPTION") or "all"

    def handle_message(message: ServiceBusReceivedMessage) -> None:
        handle(b"".join(message.body), directory, sequence_of(message.application_properties))

    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not by the loop, whose handlers do not exist on Windows.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set))
    async with open_servicebus() as client:
        receiving = asyncio.create_task(
            receive_sessions(client, topic, subscription, handle_message, sessions=sessions)
        )
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done():
            receiving.cancel()
            await asyncio.wait({receiving})
        stopping.cancel()
    if not receiving.cancelled():
        receiving.result()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
