"""`python -m local`: the local stack, for development and tests only."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from local.stack.environment import past_proxies
from outbox_relay.changefeed import shell
from relay import __version__


def _lacking(error: ModuleNotFoundError) -> str:
    """Return the remedy for a package that is not installed.

    Raises the error if it is one of the project's own.
    """
    # Of the distributions of `outbox_relay`, only `changefeed` is in the root of the repository.
    words = (error.name or "").split(".")
    package = ".".join(words[: 2 if words[0] == "outbox_relay" else 1])
    if package in ("local", "relay", "outbox_relay.changefeed", "samples"):
        raise error
    return (
        f"local: the package {package!r} is missing from {sys.executable}. Run `make setup` and use "
        ".venv/bin/python. docs/local-stack.md has the commands without make."
    )


try:
    from outbox_relay.emulators import command_line
except ModuleNotFoundError as error:
    print(_lacking(error), file=sys.stderr)
    sys.exit(2)

_COMMANDS = {
    "up": ("local.stack.command", "start the whole stack: cosmos, servicebus and functions"),
    "wait": ("local.stack.waiting", "wait until the stack is ready"),
    "status": ("local.stack.status", "print the addresses of the running stack again"),
    "down": ("local.stack.stopping", "stop the stack"),
    "send": ("local.sending.command", "commit an event to the running stack"),
    "watch": ("local.watching.command", "follow the events of the running stack"),
    "demo": ("local.demo.command", "write, relay and receive events on a separate stack, and check what arrives"),
    "chaos": ("local.chaos.command", "inject faults from a seed, and check the guarantees"),
    "provision": ("local.stack.provision", "create the database and its containers on an account or emulator"),
    "postgresql": ("local.database.command", "start only PostgreSQL, for an SQL outbox"),
    "azurite": ("local.azurite.command", "start only Blob Storage, for large events"),
    "contacts": ("local.demo.service", "start only the contact service's API, against running services"),
}


_EXIT_CODES = """\
exit codes:
  0    done
  1    not done, or not in time; of demo and chaos, an event is missing, doubled, altered or out of order
  2    no stack runs, wrong usage or wrong settings
  141  standard output was closed before all of it was written, as by head"""


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; returns its exit code."""
    about = "The local stack, for development and tests only."
    try:
        return command_line.main("python -m local", about, _COMMANDS, argv, __version__, _EXIT_CODES)
    except ModuleNotFoundError as error:
        # A later set of packages has it, such as that of an SQL source.
        print(_lacking(error), file=sys.stderr)
        return 2


if __name__ == "__main__":
    # Of this process and all that it starts.
    os.environ.update(past_proxies(os.environ))
    sys.exit(shell.run(lambda: main(sys.argv[1:])))
