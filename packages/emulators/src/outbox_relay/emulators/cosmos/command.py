"""`outbox-relay-emulators cosmos`: a Cosmos DB account in the foreground."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from outbox_relay.emulators.access import add_allowed_host
from outbox_relay.emulators.addresses import add_host, elsewhere
from outbox_relay.emulators.cosmos.edges import DEFAULT_SEED, OFF, seed_of
from outbox_relay.emulators.cosmos.offers import RU_PER_PARTITION
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import DEFAULT_KEY, CosmosServer
from outbox_relay.emulators.cosmos.storage import IN_MEMORY
from outbox_relay.emulators.process import announce, explain, until_stopped
from outbox_relay.emulators.recording import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_host(parser)
    parser.add_argument("--port", type=int, default=8081, help="port to listen on, 0 for any free one")
    parser.add_argument(
        "--public-endpoint",
        metavar="URL",
        help="endpoint that the account names to clients (default: the one that a client asked)",
    )
    add_allowed_host(parser)
    parser.add_argument(
        "--data", default=IN_MEMORY, metavar="FILE", help="keep all data in this file; in memory by default"
    )
    parser.add_argument(
        "--key",
        default=DEFAULT_KEY,
        help="account key in base64 (default: the public one of the official emulator)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=4,
        metavar="N",
        help="physical partitions of each new container",
    )
    parser.add_argument(
        "--ru-per-partition",
        type=int,
        default=RU_PER_PARTITION,
        metavar="RU",
        help="maximum throughput of a physical partition; containers with more get more partitions, new ones with "
        "manual throughput one for each 60 %% of it",
    )
    parser.add_argument(
        "--container",
        action="append",
        default=[],
        type=_container,
        metavar="DATABASE/CONTAINER:/KEY[:TTL]",
        help="create this container; TTL in seconds, or -1 for on without a default; may be repeated",
    )
    parser.add_argument(
        "--edges",
        type=seed_of,
        default=DEFAULT_SEED,
        metavar="SEED",
        help=f"draw the behaviour that the service leaves open from this number; '{OFF}' for the kindest",
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="append each commit, with its items, as a line of JSON"
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop at the end of standard input too")


async def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; returns the exit code: 0, or 1 with a line on standard error if it cannot start."""
    try:
        server = CosmosServer(
            host=arguments.host,
            port=arguments.port,
            public_endpoint=arguments.public_endpoint,
            allowed_hosts=arguments.allowed_host,
            database=arguments.data,
            key=arguments.key,
            physical_partitions=arguments.partitions,
            ru_per_partition=arguments.ru_per_partition,
            edges=arguments.edges,
            recording=None if arguments.record is None else Recording(arguments.record),
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
        explain(
            "The Cosmos DB emulator is ready.",
            {
                "Endpoint": server.endpoint,
                "Key": server.key,
                "Connection string": server.connection_string,
                **elsewhere(arguments.host),
            },
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
