"""The program `python -m local`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_relay.command_line import Program
from relay import __version__

if TYPE_CHECKING:
    from cyclopts import App

_COMMANDS = {
    "up": ("stack.command", "Start the whole stack: cosmos, servicebus and functions."),
    "wait": ("stack.waiting", "Wait until the stack is ready."),
    "status": ("stack.status", "Print the addresses of the running stack again."),
    "down": ("stack.stopping", "Stop the stack."),
    "send": ("sending.command", "Commit an event to the running stack."),
    "watch": ("watching.command", "Follow the events of the running stack."),
    "demo": (
        "demo.command",
        "Write, relay and receive events on a separate stack, and check what arrives.",
    ),
    "chaos": ("chaos.command", "Inject faults from a seed, and check the guarantees."),
    "provision": ("stack.provision", "Create the database and its containers on an account or emulator."),
    "postgresql": ("database.command", "Start only PostgreSQL, for an SQL outbox."),
    "azurite": ("azurite.command", "Start only Blob Storage, for large events."),
    "contacts": ("demo.service", "Start only the contact service's API, against running services."),
}

_EXIT_CODES = """\
exit codes:
  0    done
  1    not done, or not in time; of demo and chaos, an event is missing, doubled, altered or out of order
  2    no stack runs, wrong usage or wrong settings
  141  standard output was closed before all of it was written, as by head"""


def _add_commands(app: App) -> None:
    for name, (module, summary) in _COMMANDS.items():
        # Imported once it is chosen: some need the packages of an SQL source.
        app.command(f"local.{module}:run", name=name, help=summary)


PROGRAM = Program(
    module="local",
    script=None,
    summary="The local stack, for development and tests only.",
    epilogue=f"`python -m local COMMAND --help` describes each command.\n\n{_EXIT_CODES}",
    version=f"python -m local {__version__}",
    add_commands=_add_commands,
)
