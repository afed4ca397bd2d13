"""`python -m local`: the local stack, for development and tests only."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from local.stack.environment import past_proxies


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
    from local.program import PROGRAM
    from outbox_relay.command_line import run
    from outbox_relay.emulators import program
except ModuleNotFoundError as error:
    print(_lacking(error), file=sys.stderr)
    sys.exit(2)


def main(words: Sequence[str]) -> int:
    """Run one subcommand; returns its exit code."""
    try:
        return program.main(PROGRAM, words)
    except ModuleNotFoundError as error:
        # A later set of packages has it, such as that of an SQL source.
        print(_lacking(error), file=sys.stderr)
        return 2


if __name__ == "__main__":
    # Of this process and all that it starts.
    os.environ.update(past_proxies(os.environ))
    sys.exit(run(lambda: main(sys.argv[1:])))
