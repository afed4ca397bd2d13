"""`python -m relay run`: a plain worker that publishes from an SQL outbox until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack

from outbox_relay.operator.backends.backend import open_sql_backends
from outbox_relay.operator.cli.arguments import Commands, add_stream, chosen_streams, port_number
from outbox_relay.operator.cli.probes import serving_probes
from outbox_relay.operator.cli.terminal import ExitCode, Result, Terminal, stop_signal
from relay.config.clients import quiet_libraries, switch_off_sdk_tracing
from relay.core.errors import SettingsError

EXAMPLES = """\
examples:
  python -m relay run
  python -m relay run --env-file .local/stack.env
  python -m relay run --health-port 8080

Claims shards of the SQL feed, publishes their events in order, and stores how far it has come. Start as many as
you like: they share the shards, and when one dies, the others take its share after SQL_CLAIM_S. SIGTERM ends it
after the pages under way; its shards are free at once. The first line on standard output says that it runs.

With several streams in relay.toml, a worker for each one that has an SQL outbox runs in this process.

With APPLICATIONINSIGHTS_CONNECTION_STRING set, telemetry goes to Application Insights. An outbox in Cosmos DB is
read by the function app instead."""


def add_to(commands: Commands) -> None:
    parser = commands.add("run", "publish from an SQL outbox until stopped", EXAMPLES, run)
    add_stream(parser, "each one that has an SQL outbox if none is named")
    parser.add_argument(
        "--health-port",
        type=port_number,
        metavar="PORT",
        help="answer probes on this port of every address: /livez until the worker hangs, /readyz while it reads "
        "the claims; 0 takes a free one (default: no port is open)",
    )


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], __: Terminal) -> Result:
    """Work until SIGINT or SIGTERM."""
    backends = open_sql_backends(chosen_streams(arguments, environment))
    stop = stop_signal()
    async with AsyncExitStack() as stack:
        workers = [backend.worker for backend in backends]
        for backend in backends:
            stack.push_async_callback(backend.relay.close)
        _set_up_telemetry(environment)
        for backend in backends:
            label = backend.settings.label
            of = "" if label is None else f" on the stream {label}"
            print(f"relay worker {backend.worker.name} has started{of}", flush=True)
        if arguments.health_port is not None:
            health = [worker.health for worker in workers]
            port = await stack.enter_async_context(serving_probes(health, arguments.health_port))
            print(f"probes are answered on port {port}", flush=True)
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.run(stop))
    names = [worker.name for worker in workers]
    return Result(ExitCode.OK, {"worker": names[0], "workers": names}, ["Stopped."])


def _set_up_telemetry(environment: Mapping[str, str]) -> None:
    """Set up telemetry as the Functions worker does.

    The root logger has the level INFO, and the exporter is set up, if any.
    """
    logging.getLogger().setLevel(logging.INFO)
    quiet_libraries()
    if environment.get("APPLICATIONINSIGHTS_CONNECTION_STRING"):
        from azure.monitor.opentelemetry import configure_azure_monitor

        os.environ.setdefault("OTEL_SERVICE_NAME", "outbox-relay")
        try:
            # Of every logger, or of PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME, as in the Functions worker.
            configure_azure_monitor(connection_string=environment["APPLICATIONINSIGHTS_CONNECTION_STRING"])
            # It has just switched it on.
            switch_off_sdk_tracing()
        except ValueError:
            problem = "is no connection string: copy it from the portal, or leave it out"
            raise SettingsError([f"APPLICATIONINSIGHTS_CONNECTION_STRING {problem}"]) from None
