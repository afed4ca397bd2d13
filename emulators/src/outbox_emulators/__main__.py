"""`outbox-emulators`, or `python -m outbox_emulators`: one of the emulators in the foreground."""

from __future__ import annotations

import sys

from outbox_emulators import command_line

_COMMANDS = {
    "cosmos": ("outbox_emulators.cosmos.command", "start a Cosmos DB account"),
    "servicebus": ("outbox_emulators.servicebus.command", "start a Service Bus namespace"),
    "functions": ("outbox_emulators.functions.command", "run a function app's Cosmos DB triggers"),
}
_EXTRAS = {"proton": "servicebus", "azure": "functions", "dotenv": "functions"}
"""By imported package, the extra that installs it."""


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        sys.exit(command_line.main("outbox-emulators", "Azure emulators for development and tests.", _COMMANDS))
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.exit(f"outbox-emulators: {error}. Run pip install 'outbox-emulators[{extra}]'")


if __name__ == "__main__":
    main()
