"""`python -m outbox_emulators cosmos`: the Cosmos DB part of the local stack, as a process of its own."""

from __future__ import annotations

import argparse
import sys

from outbox_emulators.cosmos.edges import DEFAULT_SEED, OFF, seed_of
from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import DEFAULT_KEY, CosmosServer
from outbox_emulators.cosmos.storage import IN_MEMORY
from outbox_emulators.process import announce, until_stopped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=8081, help="0 for any free one (default: %(default)s)")
    parser.add_argument(
        "--data", default=IN_MEMORY, metavar="FILE", help="keep everything in this file (default: in memory)"
    )
    parser.add_argument(
        "--key", default=DEFAULT_KEY, help="the account key (default: the emulator's well-known one)"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=4,
        metavar="N",
        help="physical partitions of each new container (default: %(default)s)",
    )
    parser.add_argument(
        "--container",
        action="append",
        default=[],
        type=_container,
        metavar="DATABASE/CONTAINER:/KEY[:TTL]",
        help="have this container from the start; TTL in seconds or -1 (on, no default); can be repeated",
    )
    parser.add_argument(
        "--edges",
        type=seed_of,
        default=DEFAULT_SEED,
        metavar="SEED",
        help=f"draw what the service leaves open from this seed; '{OFF}' for the kindest (default: %(default)s)",
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop at the end of standard input")


async def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop; the exit code: 0, or 1 where the server could not start."""
    try:
        server = CosmosServer(
            port=arguments.port,
            database=arguments.data,
            key=arguments.key,
            physical_partitions=arguments.partitions,
            edges=arguments.edges,
        )
        await server.start()
    except (RuntimeError, OSError, ValueError) as error:
        print(f"cosmos: {error}", file=sys.stderr)
        return 1
    try:
        provision(server.account, arguments.container)
        announce(
            {
                "part": "cosmos",
                "endpoint": server.endpoint,
                "connection_string": server.connection_string,
                "port": server.port,
            }
        )
        await until_stopped(exit_with_stdin=arguments.exit_with_stdin)
    except ValueError as error:
        print(f"cosmos: {error}", file=sys.stderr)
        return 1
    finally:
        await server.stop()
    return 0


def _container(text: str) -> ContainerSpec:
    try:
        return ContainerSpec.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
