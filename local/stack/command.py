"""`python -m local up`."""

from __future__ import annotations

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
from local.stack.lock import AlreadyRunsError, Lock, option
from local.stack.ports import PortsInUseError
from local.stack.readings import Readings
from local.stack.supervisor import PartFailed, Stack, StackOptions
from local.stack.up import Options
from local.stack.upkeep import Ended
from outbox_relay.command_line import python
from outbox_relay.emulators.process import Stopped, until_done
from relay.config.clients import ADMIN_VARIABLE
from relay.config.settings import SERVICEBUS


async def run(*, options: Options = Options()) -> int:
    """Run the stack until Ctrl-C or SIGTERM (exit code 0), or until a part is given up (1).

    With `--detach`, return when it is ready (0), or could not be started (1). A second stack with the same env
    file is refused (1), as are ports that are in use (1).
    """
    try:
        if options.detach:
            started = await until_done(detached.start(options))
            stop = f"  Stop it: {python()} -m local down{option(options.env_file)}"
            _print_lines([*started.lines, _logs(options), stop])
        else:
            await until_done(_serve(options))
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


def _stack_options(options: Options, chosen: Mapping[ports.Port, int]) -> StackOptions:
    return StackOptions(
        source=options.source,
        shards=options.shards,
        cosmos_port=chosen[ports.COSMOS],
        postgresql_port=chosen[ports.POSTGRESQL],
        servicebus_port=chosen[ports.SERVICEBUS],
        servicebus_admin_port=chosen[ports.SERVICEBUS_ADMIN],
        functions_port=chosen[ports.FUNCTIONS],
        data=options.data,
        entities=options.entities,
        app=options.app,
        logs=options.logs,
        blobs_port=None if options.no_blobs or azurite.missing() else chosen[ports.BLOBS],
        hosts=0 if options.no_functions else 1,
    )


async def _serve(options: Options) -> None:
    with Lock(options.env_file) as lock:
        chosen = options.chosen_ports()
        blobs = not options.no_blobs and azurite.missing() is None
        ports.check(chosen, options.source, hosts=not options.no_functions, blobs=blobs)
        with outboxes.keeping(_stack_options(options, chosen)) as stack_options:
            await _serve_stack(options, stack_options, lock, chosen[ports.PAGE])


async def _serve_stack(options: Options, stack_options: StackOptions, lock: Lock, port: int) -> None:
    async with Stack(stack_options) as stack, serving_console(stack, port, options.env_file) as page:
        await stack.check_listening()
        ready_url, admin_url = f"{page}ready", stack.administration[ADMIN_VARIABLE]
        write_env_file(
            options.env_file,
            {
                **stack.operator_settings,
                "LOCAL_STACK_READY": ready_url,
                STACK_APP: str(options.app.resolve()),
                "LOCAL_SERVICEBUS_ADMIN": admin_url,
            },
        )

        def lines() -> list[str]:
            ended = [f"  {each}." for each in stack.upkeep.sentences]
            return [*_addresses(stack, admin_url, page, options.env_file), *ended]

        def tell(ended: Ended) -> None:
            lock.ready(ready_url, lines())
            _print_lines([f"{ended.text}."])

        lock.ready(ready_url, lines())
        stack.upkeep.listen(tell)
        _print_lines([*lines(), f"{_logs(options)}   Ctrl-C stops everything."])
        await _watch(stack, options.rates_every)


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


def _logs(options: Options) -> str:
    return f"  Logs: {options.logs}/"


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
