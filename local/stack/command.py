"""`python -m local up`."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.azurite import server as azurite
from local.console.serving import serving_console
from local.sending.routed import STACK_APP
from local.stack import detached, outboxes, ports
from local.stack.environment import Source, write_env_file
from local.stack.live import show_rates
from local.stack.lock import DEFAULT_ENV_FILE, AlreadyRunsError, Lock, option
from local.stack.parts import ROOT
from local.stack.ports import PortsInUseError
from local.stack.readings import Readings
from local.stack.supervisor import PartFailed, Stack, StackOptions
from local.stack.upkeep import Ended
from outbox_relay.emulators.process import Stopped, until_done
from outbox_relay.emulators.shell import python
from relay.config.clients import ADMIN_VARIABLE
from relay.config.settings import SERVICEBUS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `up`."""
    parser.add_argument(
        "--source",
        type=Source.parse,
        metavar="cosmos|sql",
        default=Source.COSMOS,
        help="where the events come from",
    )
    ports.add_arguments(parser)
    parser.add_argument("--shards", type=int, default=4, help="shards of the SQL feed")
    parser.add_argument("--app", type=Path, default=ROOT, help="folder with function_app.py and host.json")
    parser.add_argument("--entities", type=Path, help="Config.json of queues and topics; the project's by default")
    parser.add_argument(
        "--data",
        type=Path,
        help="file to keep the documents in, or folder for PostgreSQL; not kept by default",
    )
    parser.add_argument("--env-file", type=Path, default=DEFAULT_ENV_FILE, help="file to write the settings to")
    parser.add_argument("--logs", type=Path, default=Path(".local/logs"), help="folder for the logs")
    parser.add_argument(
        "--no-functions",
        action="store_true",
        help="start only the services, to run the relay in another way",
    )
    parser.add_argument(
        "--no-blobs",
        action="store_true",
        help="start no Blob Storage although Azurite is installed: large events are quarantined",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="start the stack in the background, and return when it is ready; `down` stops it",
    )
    parser.add_argument(
        "--rates-every",
        type=float,
        metavar="S",
        help="seconds between live rates on standard error, 0 for none (default: 1 on a terminal; otherwise 10, "
        "and only while something happens)",
    )


async def run(arguments: argparse.Namespace) -> int:
    """Run the stack until Ctrl-C or SIGTERM (exit code 0), or until a part is given up (1).

    With `--detach`, return when it is ready (0), or could not be started (1). A second stack with the same env
    file is refused (1), as are ports that are in use (1).
    """
    try:
        if arguments.detach:
            started = await until_done(detached.start(arguments))
            stop = f"  Stop it: {python()} -m local down{option(arguments.env_file)}"
            _print_lines([*started.lines, _logs(arguments), stop])
        else:
            await until_done(_serve(arguments))
    except Stopped:
        print("Stopped.")
        return 0
    except PartFailed as failure:
        print(f"The stack stopped: {failure}", file=sys.stderr)
        return 1
    except (AlreadyRunsError, PortsInUseError, detached.NotStartedError) as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def _options(arguments: argparse.Namespace, chosen: Mapping[ports.Port, int]) -> StackOptions:
    return StackOptions(
        source=arguments.source,
        shards=arguments.shards,
        cosmos_port=chosen[ports.COSMOS],
        postgresql_port=chosen[ports.POSTGRESQL],
        servicebus_port=chosen[ports.SERVICEBUS],
        servicebus_admin_port=chosen[ports.SERVICEBUS_ADMIN],
        functions_port=chosen[ports.FUNCTIONS],
        data=arguments.data,
        entities=arguments.entities,
        app=arguments.app,
        logs=arguments.logs,
        blobs_port=None if arguments.no_blobs or azurite.missing() else chosen[ports.BLOBS],
        hosts=0 if arguments.no_functions else 1,
    )


async def _serve(arguments: argparse.Namespace) -> None:
    with Lock(arguments.env_file) as lock:
        chosen = ports.chosen(arguments)
        blobs = not arguments.no_blobs and azurite.missing() is None
        ports.check(chosen, arguments.source, hosts=not arguments.no_functions, blobs=blobs)
        with outboxes.keeping(_options(arguments, chosen)) as options:
            await _serve_stack(arguments, options, lock, chosen[ports.PAGE])


async def _serve_stack(arguments: argparse.Namespace, options: StackOptions, lock: Lock, port: int) -> None:
    async with Stack(options) as stack, serving_console(stack, port, arguments.env_file) as page:
        await stack.check_listening()
        ready_url, admin_url = f"{page}ready", stack.administration[ADMIN_VARIABLE]
        write_env_file(
            arguments.env_file,
            {
                **stack.operator_settings,
                "LOCAL_STACK_READY": ready_url,
                STACK_APP: str(arguments.app.resolve()),
                "LOCAL_SERVICEBUS_ADMIN": admin_url,
            },
        )

        def lines() -> list[str]:
            ended = [f"  {each}." for each in stack.upkeep.sentences]
            return [*_addresses(stack, admin_url, page, arguments.env_file), *ended]

        def tell(ended: Ended) -> None:
            lock.ready(ready_url, lines())
            _print_lines([f"{ended.text}."])

        lock.ready(ready_url, lines())
        stack.upkeep.listen(tell)
        _print_lines([*lines(), f"{_logs(arguments)}   Ctrl-C stops everything."])
        await _watch(stack, arguments.rates_every)


def _addresses(stack: Stack, admin_url: str, page: str, env_file: Path) -> list[str]:
    """Return the message to a person when the stack is ready."""
    outbox = "SQL" if stack.source is Source.SQL else "COSMOS"
    lines = [
        "The local stack is ready.",
        *(f"  {name:<11} {stack.settings[name]}" for name in (outbox, SERVICEBUS, *stack.namespaces)),
        f"  Service Bus counts  {admin_url}/admin/entities",
        *(
            f"  {f'{name} counts':<19} {stack.administration[f'{name}_ADMIN']}/admin/entities"
            for name in stack.namespaces
        ),
        f"  Large events        {_large(stack)}",
    ]
    for host in stack.hosts:
        if stack.source is Source.SQL:
            lines.append(f"  Relay               {host.name}, process {host.pid}")
        else:
            lines.append(f"  Functions host      http://127.0.0.1:{host.details['port']}/admin/status")
    lines.append(f"  Readiness probe     {page}ready")
    lines.append(f"  Console             {page}")
    # Without a slash, a shell looks for it among its programs.
    path = str(env_file) if env_file.parent != Path() else f"./{env_file}"
    lines.append(f"  Settings for a shell: source {shlex.quote(path)}")
    return lines


def _large(stack: Stack) -> str:
    """Describe the place of large events in a line."""
    if stack.blobs is None:
        return f"quarantined, as Blob Storage is off: {azurite.missing() or '--no-blobs'}"
    return f"http://127.0.0.1:{stack.blobs.details['port']}/{azurite.ACCOUNT}/{azurite.CONTAINER}"


def _logs(arguments: argparse.Namespace) -> str:
    return f"  Logs: {arguments.logs}/"


def _print_lines(lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)


async def _watch(stack: Stack, rates_every_s: float | None) -> None:
    """Keep the parts running and show rates, until a part is given up, which is raised; 0 shows no rates."""
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
