"""`outbox-relay-emulators cosmos`: a Cosmos DB account in the foreground."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from outbox_relay.command_line import value, values, whole_number
from outbox_relay.emulators.addresses import LOOPBACK, elsewhere
from outbox_relay.emulators.cosmos.edges import DEFAULT_SEED, OFF, seed_of
from outbox_relay.emulators.cosmos.offers import RU_PER_PARTITION
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import DEFAULT_KEY, CosmosServer
from outbox_relay.emulators.cosmos.storage import IN_MEMORY
from outbox_relay.emulators.process import announce, explain, until_stopped
from outbox_relay.emulators.program import AllowedHosts, ExitWithStdin, Host
from outbox_relay.emulators.recording import Recording


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command.

    Attributes:
        port: port to listen on, 0 for any free one
        public_endpoint: endpoint that the account names to clients (default: the one that a client asked)
        data: keep all data in this file; in memory by default
        key: account key in base64 (default: the public one of the official emulator)
        partitions: physical partitions of each new container
        record: append each commit, with its items, as a line of JSON
    """

    host: Host = LOOPBACK
    port: Annotated[int, value(whole_number)] = 8081
    public_endpoint: Annotated[str | None, Parameter(metavar="URL")] = None
    allowed_hosts: AllowedHosts = ()
    data: Annotated[str, Parameter(metavar="FILE", show_default=False)] = IN_MEMORY
    key: Annotated[str, Parameter(show_default=False)] = DEFAULT_KEY
    partitions: Annotated[int, value(whole_number, metavar="N")] = 4
    ru_per_partition: Annotated[
        int,
        value(
            whole_number,
            metavar="RU",
            help="maximum throughput of a physical partition; containers with more get more partitions, new ones "
            "with manual throughput one for each 60 % of it",
        ),
    ] = RU_PER_PARTITION
    container: Annotated[
        tuple[ContainerSpec, ...],
        values(
            ContainerSpec.parse,
            metavar="DATABASE/CONTAINER:/KEY[:TTL]",
            help="create this container; TTL in seconds, or -1 for on without a default; may be repeated",
        ),
    ] = ()
    edges: Annotated[
        int | None,
        value(
            seed_of,
            metavar="SEED",
            help=f"draw the behaviour that the service leaves open from this number; '{OFF}' for the kindest",
        ),
    ] = DEFAULT_SEED
    record: Annotated[Path | None, Parameter(metavar="FILE")] = None
    exit_with_stdin: ExitWithStdin = False


async def run(*, options: Options = Options()) -> int:
    """Serve until a signal; returns the exit code: 0, or 1 with a line on standard error if it cannot start."""
    try:
        server = CosmosServer(
            host=options.host,
            port=options.port,
            public_endpoint=options.public_endpoint,
            allowed_hosts=options.allowed_hosts,
            database=options.data,
            key=options.key,
            physical_partitions=options.partitions,
            ru_per_partition=options.ru_per_partition,
            edges=options.edges,
            recording=None if options.record is None else Recording(options.record),
        )
        await server.start()
    except (RuntimeError, OSError, ValueError) as error:
        print(f"cosmos: {error}", file=sys.stderr)
        return 1
    try:
        provision(server.account, options.container)
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
                **elsewhere(options.host),
            },
        )
        await until_stopped(exit_with_stdin=options.exit_with_stdin)
    except ValueError as error:
        print(f"cosmos: {error}", file=sys.stderr)
        return 1
    finally:
        await server.stop()
    return 0
