"""`outbox-relay-emulators`, or `python -m outbox_relay.emulators`: one of the emulators in the foreground."""

from __future__ import annotations

import sys

from outbox_relay.emulators import __version__, command_line, shell

_COMMANDS = {
    "cosmos": ("outbox_relay.emulators.cosmos.command", "start a Cosmos DB account"),
    "servicebus": ("outbox_relay.emulators.servicebus.command", "start a Service Bus namespace"),
    "functions": ("outbox_relay.emulators.functions.command", "run a function app's Cosmos DB triggers"),
}
_EXTRAS = {"proton": "servicebus", "cryptography": "tls", "azure": "functions", "dotenv": "functions"}
"""By imported package, the extra that installs it."""


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        about = "Azure emulators for development and tests."
        sys.exit(
            shell.run(lambda: command_line.main("outbox-relay-emulators", about, _COMMANDS, version=__version__))
        )
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "outbox_relay":
            raise
        extra = _EXTRAS.get(package)
        wanted = "outbox-relay-emulators" if extra is None else f"'outbox-relay-emulators[{extra}]'"
        remedy = f"Run {shell.python()} -m pip install {wanted}"
        print(f"outbox-relay-emulators: the package {package!r} is missing. {remedy}.", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
