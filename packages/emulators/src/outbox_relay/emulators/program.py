"""The program `outbox-relay-emulators`: its commands, the options that they share, and how they run."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from outbox_relay.command_line import Call, Program, value
from outbox_relay.emulators import __version__
from outbox_relay.emulators.addresses import HOST_VARIABLE, LOOPBACK, host_name
from outbox_relay.emulators.process import heed_signals

_COMMANDS = {
    "cosmos": "Start a Cosmos DB account.",
    "servicebus": "Start a Service Bus namespace.",
    "functions": "Run a function app's Cosmos DB triggers.",
}

EXIT_CODES = """\
exit codes:
  0    stopped, by a signal or as --exit-with-stdin says
  1    it could not start; standard error has the reason
  2    wrong usage, or a package is missing
  141  standard output was closed before all of it was written, as by head"""
"""Of the commands that serve until they are stopped."""

Host = Annotated[
    str,
    value(
        host_name,
        metavar="ADDRESS",
        env_var=HOST_VARIABLE,
        show_env_var=False,
        show_default=False,
        help="address to listen on, 0.0.0.0 for all of this machine's: the keys are public "
        f"(default: the environment variable {HOST_VARIABLE}, or else {LOOPBACK})",
    ),
]
"""The address that an emulator listens on."""

AllowedHosts = Annotated[
    tuple[str, ...],
    Parameter(
        name="--allowed-host",
        metavar="NAME",
        help="a host name by which clients reach the HTTP ports, besides localhost; may be repeated",
    ),
]
"""The names by which clients may reach an emulator."""

ExitWithStdin = Annotated[bool, Parameter(help="stop at the end of standard input too")]
"""The option that ties an emulator to the process that started it."""


def _add_commands(app: App) -> None:
    for name, summary in _COMMANDS.items():
        # Imported once it is chosen: each needs an extra of its own.
        app.command(f"outbox_relay.emulators.{name}.command:run", name=name, help=summary)


PROGRAM = Program(
    module="outbox_relay.emulators",
    script="outbox-relay-emulators",
    summary="Azure emulators for development and tests.",
    epilogue=f"`outbox-relay-emulators COMMAND --help` describes each command.\n\n{EXIT_CODES}",
    version=f"outbox-relay-emulators {__version__}",
    add_commands=_add_commands,
)


def main(program: Program, words: Sequence[str]) -> int:
    """Run the command that the words choose; returns its exit code. Wrong usage raises SystemExit(2)."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # The SDKs log every request at INFO.
    logging.getLogger("azure").setLevel(logging.WARNING)
    return asyncio.run(run(program.parse(words)))


async def run(call: Call) -> int:
    """Run one command until it is done or a signal stops it; return its exit code."""
    heed_signals()
    code: int = await call.function(*call.positional, **call.options)
    return code
