"""Receive contact events into a directory, handle dead letters, show the directory, or show missing events."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import inbox
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.receiving import handle_message
from samples.contacts.settings import SettingMissing, open_servicebus

_DIRECTORY = Path(".local/directory.sqlite")


def main(argv: list[str]) -> int:
    """Run one command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m samples.contacts.consumer", description=__doc__)
    parser.add_argument(
        "command", choices=("receive", "dead-letters", "show", "missing"), nargs="?", default="receive"
    )
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
            if arguments.command == "dead-letters":
                return asyncio.run(_handle_dead_letters(directory))
            asyncio.run(_receive(directory, arguments.sessions))
        except SettingMissing as missing:
            print(missing, file=sys.stderr)
            return 2
    return 0


def _subscription() -> dict[str, Any]:
    return {
        "topic": os.environ.get("SERVICEBUS_TOPIC") or "domain-events",
        "subscription": os.environ.get("SERVICEBUS_SUBSCRIPTION") or "all",
    }


async def _handle_dead_letters(directory: Directory) -> int:
    """Handle the dead letters that there are; returns 1 if some are left."""
    async with open_servicebus() as client:
        receiver = inbox.DeadLetterReceiver(
            client, lambda message: handle_message(message, directory), **_subscription()
        )
        report = await receiver.run()
    print(json.dumps(asdict(report), ensure_ascii=False))
    return 1 if report.remainder else 0


async def _receive(directory: Directory, sessions: int) -> None:
    """Receive until SIGINT or SIGTERM."""
    async with open_servicebus() as client:
        receiver = inbox.Receiver(
            client,
            lambda message: handle_message(message, directory),
            **_subscription(),
            sessions=sessions,
        )
        inbox.stop_on_signals(receiver)
        await receiver.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
