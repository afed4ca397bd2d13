"""`outbox-relay-emulators functions`: a function app's host in the foreground."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from outbox_relay.command_line import number, positive, value, whole_number
from outbox_relay.emulators import process
from outbox_relay.emulators.functions.admin import served
from outbox_relay.emulators.functions.edges import DEFAULT_SEED, Edges
from outbox_relay.emulators.functions.environment import read_env_file
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.host import DEFAULT_SHUTDOWN_TIMEOUT_S, Host
from outbox_relay.emulators.functions.worker.process import ORPHAN_LIMIT_S
from outbox_relay.emulators.program import ExitWithStdin

DEFAULT_PORT = 7071


def _seed(text: str) -> int | None:
    try:
        return None if text == "off" else int(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a whole number, such as 7, nor 'off'") from None


Milliseconds = Annotated[int | None, value(positive, metavar="MS")]
File = Annotated[Path | None, Parameter(metavar="FILE")]
Folder = Annotated[Path | None, Parameter(metavar="DIR")]
Seconds = Annotated[float, value(number, metavar="S")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command.

    Attributes:
        app: directory of the function app
        env_file: app settings, which override the environment; a later file overrides an earlier one
        port: port of /health and /admin, 0 for any free one
        instance: name of the host as an owner of leases; random by default
        lease_acquire_ms: time between two searches for leases to take; the trigger's by default
        lease_renew_ms: time between two renewals of a lease; the trigger's by default
        lease_expiration_ms: time after which a lease that is not renewed is free; the trigger's by default
        function_timeout_ms: time limit of an invocation; functionTimeout of host.json by default
        storage: folder that replaces the account of AzureWebJobsStorage: hosts that share it run each timer once
        lock_ms: time after which a timer's lock expires, and between attempts to take it; host.json's by default
        edges: draw the behaviour that the platform leaves open from this number; 'off' for the kindest
        edges_journal: append a line to this file for each such behaviour; the file survives a killed host
        exported_log: stay up without functions where the app cannot be indexed, as in Azure; the file says why
        worker_times_out: start as a host whose worker has not initialised within 10 s: without functions
        orphan_limit_s: how long a worker may outlive a killed host to finish its invocations
        shutdown_timeout_s: how long to wait for running invocations when stopping
    """

    app: Annotated[Path, Parameter(metavar="DIR")] = Path()
    env_file: Annotated[tuple[Path, ...], Parameter(metavar="FILE")] = ()
    port: Annotated[int, value(whole_number)] = DEFAULT_PORT
    instance: Annotated[str | None, Parameter(metavar="NAME")] = None
    lease_acquire_ms: Milliseconds = None
    lease_renew_ms: Milliseconds = None
    lease_expiration_ms: Milliseconds = None
    function_timeout_ms: Milliseconds = None
    storage: Folder = None
    lock_ms: Milliseconds = None
    edges: Annotated[int | None, value(_seed, metavar="SEED")] = DEFAULT_SEED
    edges_journal: File = None
    exported_log: File = None
    worker_times_out: bool = False
    orphan_limit_s: Seconds = ORPHAN_LIMIT_S
    exit_with_stdin: ExitWithStdin = False
    shutdown_timeout_s: Seconds = DEFAULT_SHUTDOWN_TIMEOUT_S


async def run(*, options: Options = Options()) -> int:
    """Serve until a signal; returns the exit code: 0, or 1 with a line on standard error if it cannot start."""
    settings: dict[str, str] = {}
    try:
        for path in options.env_file:
            settings |= read_env_file(path)
        host = Host(
            options.app,
            settings,
            instance=options.instance,
            lease_acquire_ms=options.lease_acquire_ms,
            lease_renew_ms=options.lease_renew_ms,
            lease_expiration_ms=options.lease_expiration_ms,
            function_timeout_ms=options.function_timeout_ms,
            lock_ms=options.lock_ms,
            storage=options.storage,
            exported_log=options.exported_log,
            worker_times_out=options.worker_times_out,
            orphan_limit_s=options.orphan_limit_s,
            shutdown_timeout_s=options.shutdown_timeout_s,
            edges=Edges(options.edges, options.edges_journal),
            separate_worker=True,
            worker_replaced=partial(process.announce_again, "the worker"),
        )
        await host.start()
    except HostError as error:
        print(f"functions: {error}", file=sys.stderr)
        return 1
    try:
        async with served(host, options.port) as port:
            process.announce({"part": "functions", "port": port, "instance": host.instance, "pid": os.getpid()})
            process.explain(
                f"The Functions host runs {options.app.resolve()}.",
                {"Status": f"http://127.0.0.1:{port}/admin/status", "Instance": host.instance},
            )
            await process.until_stopped(exit_with_stdin=options.exit_with_stdin)
    except OSError as error:
        print(f"functions: port {options.port} cannot be served: {error}", file=sys.stderr)
        return 1
    finally:
        await host.stop()
    return 0
