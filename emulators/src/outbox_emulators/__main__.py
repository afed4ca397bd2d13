"""`outbox-emulators`, or `python -m outbox_emulators`: one of the emulators in the foreground."""

from __future__ import annotations

import sys

from outbox_emulators import command_line

_COMMANDS = {
    "cosmos": ("outbox_emulators.cosmos.command", "start a Cosmos DB account"),
    "servicebus": ("outbox_emulators.servicebus.command", "start a Service Bus namespace"),
    "functions": ("outbox_emulators.functions.command", "run a function app's Cosmos DB triggers"),
}


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.exit(command_line.main("outbox-emulators", "The emulators, for development and tests only.", _COMMANDS))


if __name__ == "__main__":
    main()
