"""`outbox-relay-changefeed`, or `python -m outbox_relay.changefeed`: the commands."""

from __future__ import annotations

import sys

from outbox_relay.changefeed import cli, shell


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.exit(shell.run(lambda: cli.main(sys.argv[1:])))


if __name__ == "__main__":
    main()
