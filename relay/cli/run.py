"""`python -m relay run`: a plain worker that publishes from an SQL outbox until it is stopped."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack

from relay.assembly import assemble_sql
from relay.cli.arguments import Commands, port_number
from relay.cli.probes import serving_probes
from relay.cli.terminal import ExitCode, Result, Terminal, stop_signal
from relay.clients import quiet_libraries, switch_off_sdk_tracing
from relay.errors import SettingsError
from relay.settings import Settings

EXAMPLES = """\
examples:
  python -m relay run
  python -m relay run --env-file .local/stack.env
  python -m relay run --health-port 8080

Claims shards of the SQL feed, publishes their events in order, and stores how far it has come. Start as many as
you like: they share the shards, and when one dies, the others take its share after SQL_CLAIM_S. SIGTERM ends it
after the pages under way; its shards are free at once. The first line on standard output says that it runs.

With APPLICATIONINSIGHTS_CONNECTION_STRING set, telemetry goes to Application Insights. An outbox in Cosmos DB is
read by the function app instead."""


def add_to(commands: Commands) -> None:
    parser = commands.add("run", "publish from an SQL outbox until stopped", EXAMPLES, run)
    parser.add_argument(
        "--health-port",
        type=port_number,
        metavar="PORT",
        help="answer probes on this port of every address: /livez until the worker hangs, /readyz while it reads "
        "the claims; 0 takes a free one (default: no port is open)",
    )


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], __: Terminal) -> Result:
    """Work until SIGINT or SIGTERM."""
    relay = assemble_sql(Settings.from_environment(environment))
    stop = stop_signal()
    try:
        _set_up_telemetry(environment)
        print(f"relay worker {relay.worker.name} has started", flush=True)
        async with AsyncExitStack() as stack:
            if arguments.health_port is not None:
                port = await stack.enter_async_context(serving_probes(relay.worker.health, arguments.health_port))
                print(f"probes are answered on port {port}", flush=True)
            await relay.worker.run(stop)
    finally:
        await relay.close()
    return Result(ExitCode.OK, {"worker": relay.worker.name}, ["Stopped."])


def _set_up_telemetry(environment: Mapping[str, str]) -> None:
    """As the Functions worker does for the function app: the root logger at INFO, and the exporter, if any."""
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
