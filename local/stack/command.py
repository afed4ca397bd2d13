"""`python -m local up`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from local.stack.environment import Source, write_env_file
from local.stack.live import show_rates
from local.stack.parts import ROOT
from local.stack.probe import Probe
from local.stack.readings import Readings
from local.stack.supervisor import PartFailed, Stack, StackOptions
from outbox_emulators.process import Stopped, until_done


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `up`."""
    parser.add_argument(
        "--source",
        type=Source.parse,
        metavar="cosmos|sql",
        default=Source.COSMOS,
        help="where the events come from",
    )
    parser.add_argument("--port", type=int, default=7070, help="readiness probe; for any port, 0 takes a free one")
    parser.add_argument("--cosmos-port", type=int, default=8081, help="Cosmos DB")
    parser.add_argument("--postgresql-port", type=int, default=5432, help="PostgreSQL, with --source sql")
    parser.add_argument("--shards", type=int, default=4, help="shards of the SQL feed")
    parser.add_argument("--servicebus-port", type=int, default=5672, help="Service Bus, AMQP")
    parser.add_argument("--servicebus-admin-port", type=int, default=5300, help="Service Bus, HTTP")
    parser.add_argument("--functions-port", type=int, default=7071, help="the Functions host's status")
    parser.add_argument("--app", type=Path, default=ROOT, help="folder with function_app.py and host.json")
    parser.add_argument("--entities", type=Path, help="Config.json of queues and topics; the project's by default")
    parser.add_argument(
        "--data",
        type=Path,
        help="file to keep the documents in, or folder for PostgreSQL; not kept by default",
    )
    parser.add_argument(
        "--env-file", type=Path, default=Path(".local/stack.env"), help="file to write the settings to"
    )
    parser.add_argument("--logs", type=Path, default=Path(".local/logs"), help="folder for the logs")
    parser.add_argument(
        "--no-functions",
        action="store_true",
        help="start only the services, to run the relay in another way",
    )
    parser.add_argument(
        "--rates-every",
        type=float,
        metavar="S",
        help="seconds between live rates on standard error, 0 for none (default: 1 on a terminal; otherwise 10, "
        "and only while something happens)",
    )


async def run(arguments: argparse.Namespace) -> int:
    """Run the stack until Ctrl-C or SIGTERM (exit code 0), or until a part fails (1)."""
    options = StackOptions(
        source=arguments.source,
        shards=arguments.shards,
        postgresql_port=arguments.postgresql_port,
        cosmos_port=arguments.cosmos_port,
        servicebus_port=arguments.servicebus_port,
        servicebus_admin_port=arguments.servicebus_admin_port,
        functions_port=arguments.functions_port,
        data=arguments.data,
        entities=arguments.entities,
        app=arguments.app,
        logs=arguments.logs,
        hosts=0 if arguments.no_functions else 1,
    )
    try:
        await until_done(_serve(options, arguments.port, arguments.env_file, arguments.rates_every))
    except Stopped:
        print("Stopped.")
        return 0
    except PartFailed as failure:
        print(f"The stack stopped: {failure}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: StackOptions, probe_port: int, env_file: Path, rates_every_s: float | None) -> None:
    async with Stack(options) as stack, Probe(stack, probe_port) as probe:
        ready_url = f"http://127.0.0.1:{probe.port}/ready"
        admin_url = f"http://127.0.0.1:{stack.servicebus.details['admin_port']}"
        write_env_file(
            env_file,
            {
                **stack.settings,
                "SERVICEBUS_ADMIN": admin_url,
                "LOCAL_STACK_READY": ready_url,
                "LOCAL_SERVICEBUS_ADMIN": admin_url,
            },
        )
        print("The local stack is ready.")
        outbox = "SQL" if options.source is Source.SQL else "COSMOS"
        print(f"  {outbox:<11} {stack.settings[outbox]}")
        print(f"  SERVICEBUS  {stack.settings['SERVICEBUS']}")
        print(f"  Service Bus counts  {admin_url}/admin/entities")
        for host in stack.hosts:
            if options.source is Source.SQL:
                print(f"  Relay               {host.name}, process {host.pid}")
            else:
                print(f"  Functions host      http://127.0.0.1:{host.details['port']}/admin/status")
        print(f"  Readiness probe     {ready_url}")
        print(f"  Settings for a shell: source {env_file}")
        print(f"  Logs: {options.logs}/   Ctrl-C stops everything.", flush=True)
        await _watch(stack, rates_every_s)


async def _watch(stack: Stack, rates_every_s: float | None) -> None:
    """Show rates until a part ends, which is raised; an interval of 0 shows none."""
    if rates_every_s is not None and rates_every_s <= 0:
        await stack.watch()
    async with Readings(stack) as readings:
        showing = asyncio.create_task(show_rates(readings, sys.stderr, rates_every_s))
        watching = asyncio.create_task(stack.watch())
        try:
            done, _ = await asyncio.wait({showing, watching}, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            showing.cancel()
            watching.cancel()
            await asyncio.gather(showing, watching, return_exceptions=True)
