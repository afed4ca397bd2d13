"""`python -m local`: the local stack, for development and tests only."""

from __future__ import annotations

import sys
from collections.abc import Sequence

try:
    from outbox_emulators import command_line
except ModuleNotFoundError as error:
    print(
        f"local: the package {error.name!r} is missing from {sys.executable}. Run `make setup` and use "
        ".venv/bin/python. docs/local-stack.md has the commands without make.",
        file=sys.stderr,
    )
    sys.exit(2)

_COMMANDS = {
    "up": ("local.stack.command", "start the whole stack: cosmos, servicebus and functions"),
    "wait": ("local.stack.waiting", "wait until the stack is ready"),
    "down": ("local.stack.stopping", "stop the stack"),
    "send": ("local.sending.command", "commit an event to the running stack"),
    "watch": ("local.watching.command", "follow the events of the running stack"),
    "demo": ("local.demo.command", "run the contact service on a separate stack, and check what arrives"),
    "chaos": ("local.chaos.command", "inject faults from a seed, and check the guarantees"),
    "soak": ("local.soak.command", "relay many events: all arrive once, and memory does not grow"),
    "provision": ("local.stack.provision", "create the database and its containers on an account or emulator"),
    "postgresql": ("local.database.command", "start only PostgreSQL, for an SQL outbox"),
    "contacts": ("local.demo.service", "start only the contact service's API, against running services"),
}


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; returns its exit code."""
    return command_line.main(
        "python -m local", "The local stack, for development and tests only.", _COMMANDS, argv
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
