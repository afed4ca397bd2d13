"""Receive contact events into a directory, handle dead letters, show the directory, or show missing events."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from dataclasses import asdict
from typing import Any

from outbox_relay import inbox
from samples.contacts.consumer.kept import Kept, open_directory
from samples.contacts.settings import SettingMissing, open_servicebus

_DIRECTORY = ".local/directory.sqlite"


def main(argv: list[str]) -> int:
    """Run one command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m samples.contacts.consumer", description=__doc__)
    parser.add_argument(
        "command", choices=("receive", "dead-letters", "show", "missing"), nargs="?", default="receive"
    )
    parser.add_argument(
        "--directory",
        default=_DIRECTORY,
        metavar="FILE|URL",
        help="a file of SQLite, or the postgresql:// URL of a database; default: %(default)s",
    )
    parser.add_argument("--sessions", type=int, default=16, help="concurrent sessions; default: %(default)s")
    arguments = parser.parse_args(argv)
    if arguments.command in ("receive", "dead-letters"):
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        # The SDK logs every link at INFO.
        logging.getLogger("azure").setLevel(logging.WARNING)
    try:
        return asyncio.run(_run(arguments))
    except SettingMissing as missing:
        print(missing, file=sys.stderr)
        return 2


async def _run(arguments: argparse.Namespace) -> int:
    async with open_directory(arguments.directory) as directory:
        match arguments.command:
            case "show":
                for contact in await directory.contacts():
                    print(json.dumps(contact, ensure_ascii=False))
            case "missing":
                for contact_id, sequence in await directory.missing():
                    print(json.dumps({"contactId": contact_id, "sequence": sequence}))
            case "dead-letters":
                return await _handle_dead_letters(directory)
            case _:
                await _receive(directory, arguments.sessions)
    return 0


def _subscription() -> dict[str, Any]:
    return {
        "topic": os.environ.get("SERVICEBUS_TOPIC") or "domain-events",
        "subscription": os.environ.get("SERVICEBUS_SUBSCRIPTION") or "all",
    }


async def _handle_dead_letters(directory: Kept) -> int:
    """Handle the dead letters that there are; returns 1 if some are left."""
    async with open_servicebus() as client:
        receiver = inbox.DeadLetterReceiver(client, directory.handle, **_subscription())
        report = await receiver.run()
    print(json.dumps(asdict(report), ensure_ascii=False))
    return 1 if report.remainder else 0


async def _receive(directory: Kept, sessions: int) -> None:
    """Receive until SIGINT or SIGTERM."""
    async with open_servicebus() as client:
        receiver = inbox.Receiver(
            client,
            directory.handle,
            **_subscription(),
            sessions=sessions,
        )
        inbox.stop_on_signals(receiver)
        await receiver.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
