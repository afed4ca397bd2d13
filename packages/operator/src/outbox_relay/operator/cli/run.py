"""`python -m relay run`: a plain worker that publishes from an SQL outbox until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Annotated

from outbox_relay.command_line import port_number, value
from outbox_relay.operator.backends.backend import open_sql_backends
from outbox_relay.operator.cli.options import AllStreams, Session, command_app
from outbox_relay.operator.cli.probes import serving_probes
from outbox_relay.operator.cli.terminal import ExitCode, Result, stop_signal
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


app = command_app("run", EXAMPLES)


@app.default
async def run(
    *,
    health_port: Annotated[
        int | None,
        value(
            port_number,
            metavar="PORT",
            help="answer probes on this port of every address: /livez until the worker hangs, /readyz while it "
            "reads the claims; 0 takes a free one (default: no port is open)",
        ),
    ] = None,
    options: AllStreams = AllStreams(),
    session: Session,
) -> Result:
    """Publish from an SQL outbox until SIGINT or SIGTERM."""
    backends = open_sql_backends(options.streams(session.environment))
    stop = stop_signal()
    async with AsyncExitStack() as stack:
        workers = [backend.worker for backend in backends]
        for backend in backends:
            stack.push_async_callback(backend.relay.close)
        _set_up_telemetry(session.environment)
        for backend in backends:
            label = backend.settings.label
            of = "" if label is None else f" on the stream {label}"
            print(f"relay worker {backend.worker.name} has started{of}", flush=True)
        if health_port is not None:
            health = [worker.health for worker in workers]
            port = await stack.enter_async_context(serving_probes(health, health_port))
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
