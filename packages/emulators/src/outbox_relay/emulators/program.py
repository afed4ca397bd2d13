"""The program `outbox-relay-emulators`: one of the emulators in the foreground."""

from __future__ import annotations

from cyclopts import App

from outbox_relay.command_line import Program
from outbox_relay.emulators import __version__
from outbox_relay.emulators.command_line import EXIT_CODES

_COMMANDS = {
    "cosmos": "Start a Cosmos DB account.",
    "servicebus": "Start a Service Bus namespace.",
    "functions": "Run a function app's Cosmos DB triggers.",
}


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
