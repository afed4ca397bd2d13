"""`outbox-relay-emulators functions`: a function app's host in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from outbox_relay.emulators import process
from outbox_relay.emulators.command_line import positive
from outbox_relay.emulators.functions.admin import served
from outbox_relay.emulators.functions.edges import DEFAULT_SEED, Edges
from outbox_relay.emulators.functions.environment import read_env_file
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.host import DEFAULT_SHUTDOWN_TIMEOUT_S, Host
from outbox_relay.emulators.functions.worker.process import ORPHAN_LIMIT_S

DEFAULT_PORT = 7071


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    parser.add_argument("--app", type=Path, default=Path(), metavar="DIR", help="directory of the function app")
    parser.add_argument(
        "--env-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="app settings, which override the environment; a later file overrides an earlier one",
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="port of /health and /admin, 0 for any free one"
    )
    parser.add_argument(
        "--instance", metavar="NAME", help="name of the host as an owner of leases; random by default"
    )
    for name, meaning in (
        ("acquire", "between two searches for leases to take"),
        ("renew", "between two renewals of a lease"),
        ("expiration", "after which a lease that is not renewed is free"),
    ):
        parser.add_argument(
            f"--lease-{name}-ms",
            type=positive,
            metavar="MS",
            help=f"time {meaning}; the trigger's by default",
        )
    parser.add_argument(
        "--function-timeout-ms",
        type=positive,
        metavar="MS",
        help="time limit of an invocation; functionTimeout of host.json by default",
    )
    parser.add_argument(
        "--storage",
        type=Path,
        metavar="DIR",
        help="folder that replaces the account of AzureWebJobsStorage: hosts that share it run each timer once",
    )
    parser.add_argument(
        "--lock-ms",
        type=positive,
        metavar="MS",
        help="time after which a timer's lock expires, and between attempts to take it; host.json's by default",
    )
    parser.add_argument(
        "--edges",
        type=_seed,
        default=DEFAULT_SEED,
        metavar="SEED",
        help="draw the behaviour that the platform leaves open from this number; 'off' for the kindest",
    )
    parser.add_argument(
        "--edges-journal",
        type=Path,
        metavar="FILE",
        help="append a line to this file for each such behaviour; the file survives a host that is killed",
    )
    parser.add_argument(
        "--exported-log",
        type=Path,
        metavar="FILE",
        help="stay up without functions where the app cannot be indexed, as in Azure; this file has the reason",
    )
    parser.add_argument(
        "--worker-times-out",
        action="store_true",
        help="start as a host whose worker has not initialised within 10 s: without functions",
    )
    parser.add_argument(
        "--orphan-limit-s",
        type=float,
        default=ORPHAN_LIMIT_S,
        metavar="S",
        help="how long a worker may outlive a killed host to finish its invocations",
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop at the end of standard input too")
    parser.add_argument(
        "--shutdown-timeout-s",
        type=float,
        default=DEFAULT_SHUTDOWN_TIMEOUT_S,
        metavar="S",
        help="how long to wait for running invocations when stopping",
    )


async def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; returns the exit code: 0, or 1 with a line on standard error if it cannot start."""
    settings: dict[str, str] = {}
    try:
        for path in arguments.env_file:
            settings |= read_env_file(path)
        host = Host(
            arguments.app,
            settings,
            instance=arguments.instance,
            lease_acquire_ms=arguments.lease_acquire_ms,
            lease_renew_ms=arguments.lease_renew_ms,
            lease_expiration_ms=arguments.lease_expiration_ms,
            function_timeout_ms=arguments.function_timeout_ms,
            lock_ms=arguments.lock_ms,
            storage=arguments.storage,
            exported_log=arguments.exported_log,
            worker_times_out=arguments.worker_times_out,
            orphan_limit_s=arguments.orphan_limit_s,
            shutdown_timeout_s=arguments.shutdown_timeout_s,
            edges=Edges(arguments.edges, arguments.edges_journal),
            separate_worker=True,
            worker_replaced=partial(process.announce_again, "the worker"),
        )
        await host.start()
    except HostError as error:
        print(f"functions: {error}", file=sys.stderr)
        return 1
    try:
        async with served(host, arguments.port) as port:
            process.announce({"part": "functions", "port": port, "instance": host.instance, "pid": os.getpid()})
            process.explain(
                f"The Functions host runs {arguments.app.resolve()}.",
                {"Status": f"http://127.0.0.1:{port}/admin/status", "Instance": host.instance},
            )
            await process.until_stopped(exit_with_stdin=arguments.exit_with_stdin)
    except OSError as error:
        print(f"functions: port {arguments.port} cannot be served: {error}", file=sys.stderr)
        return 1
    finally:
        await host.stop()
    return 0


def _seed(text: str) -> int | None:
    try:
        return None if text == "off" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number, such as 7, nor 'off'") from None
