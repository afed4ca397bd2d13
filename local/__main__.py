"""`python -m local`: the local stack, for development and tests only."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from outbox_emulators import command_line

_COMMANDS = {
    "up": ("local.stack.command", "start the whole stack: cosmos, servicebus and functions"),
    "demo": ("local.demo.command", "drive the contact service on a stack of its own, and count what arrives"),
    "chaos": ("local.chaos.command", "a seeded fault campaign, and what it did to the guarantees"),
    "soak": ("local.soak.command", "very many events through one relay, and whether its memory stays flat"),
    "provision": ("local.stack.provision", "create the database and its containers on an account or emulator"),
    "contacts": ("local.demo.service", "start only the contact service's API, against services that run already"),
}


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; returns its exit code."""
    return command_line.main(
        "python -m local", "The local stack, for development and tests only.", _COMMANDS, argv
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
