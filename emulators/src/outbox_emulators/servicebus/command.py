"""`python -m outbox_emulators servicebus`: the broker in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

from outbox_emulators import process
from outbox_emulators.servicebus.edges import DEFAULT_SEED, parse_seed
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.server import ServiceBusServer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--port", type=int, default=5672, help="AMQP port, 0 for any free one (%(default)s)")
    parser.add_argument("--admin-port", type=int, default=5300, help="HTTP port, 0 for any free one (%(default)s)")
    parser.add_argument(
        "--entities",
        type=Path,
        required=True,
        metavar="FILE",
        help="queues, topics and subscriptions, in the official emulator's Config.json format",
    )
    parser.add_argument(
        "--tier",
        choices=("standard", "premium"),
        default="standard",
        help="tier whose limits apply (%(default)s)",
    )
    parser.add_argument(
        "--partitioned",
        action="append",
        default=[],
        metavar="NAME",
        help="a queue or topic to partition, for which the file's format has no property; may be repeated",
    )
    parser.add_argument(
        "--ack-delay-ms", type=int, default=0, metavar="MS", help="delay of each acknowledgement (%(default)s)"
    )
    parser.add_argument(
        "--edges",
        type=_seed,
        default=DEFAULT_SEED,
        metavar="SEED",
        help="seed of the behaviour that varies or is not specified; 'off' for the usual one (%(default)s)",
    )
    parser.add_argument(
        "--idle-ms",
        type=_milliseconds,
        metavar="MS",
        help="how long a link may idle before it is detached; by default 60 000, and 600 000 with --edges off",
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when standard input ends")


def _seed(text: str) -> int | None:
    try:
        return parse_seed(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number or 'off', not '{text}'") from None


def _milliseconds(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of milliseconds above 0, not '{text}'")
    return int(text)


async def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped; return the exit code. Raises EntitiesError or OSError when it cannot start."""
    entities = Entities.from_file(arguments.entities)
    for name in arguments.partitioned:
        entities = entities.with_partitioning(name)
    server = ServiceBusServer(
        entities,
        port=arguments.port,
        admin_port=arguments.admin_port,
        tier=arguments.tier,
        ack_delay_ms=arguments.ack_delay_ms,
        edges=arguments.edges,
        idle_ms=arguments.idle_ms,
    )
    async with server:
        process.announce(
            {
                "part": "servicebus",
                "connection_string": server.connection_string,
                "port": server.port,
                "admin_port": server.admin_port,
                "duplicate_windows_s": {
                    topic.name: topic.sending.duplicates.window_ms // 1000
                    for topic in entities.topics
                    if topic.sending.duplicates is not None
                },
            }
        )
        await process.until_stopped(exit_with_stdin=arguments.exit_with_stdin)
    return 0
