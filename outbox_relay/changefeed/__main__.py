"""`outbox-relay-changefeed`, or `python -m outbox_relay.changefeed`: the commands."""

from __future__ import annotations

import shlex
import sys


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        from outbox_relay.changefeed import cli
        from outbox_relay.command_line import run
    except ModuleNotFoundError as error:
        if error.name not in ("outbox_relay.command_line", "cyclopts", "rich"):
            raise
        print(
            f"changefeed: the package {error.name!r} is missing. Run {shlex.quote(sys.executable)} -m pip install "
            "'outbox-relay-changefeed[cli]'.",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(lambda: cli.main(sys.argv[1:])))


if __name__ == "__main__":
    main()
