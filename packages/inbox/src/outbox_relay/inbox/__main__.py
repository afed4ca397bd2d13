"""`outbox-relay-inbox`, or `python -m outbox_relay.inbox`: the commands of operators."""

from __future__ import annotations

import shlex
import sys


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        from outbox_relay.command_line import run
        from outbox_relay.inbox import commands
    except ModuleNotFoundError as error:
        if error.name not in ("outbox_relay.command_line", "cyclopts", "rich"):
            raise
        print(
            f"inbox: the package {error.name!r} is missing. Run {shlex.quote(sys.executable)} -m pip install "
            "'outbox-relay-inbox[cli]'.",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(commands.main))


if __name__ == "__main__":
    main()
