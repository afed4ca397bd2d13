"""`outbox-relay-inbox`, or `python -m outbox_relay.inbox`: the commands of operators."""

from __future__ import annotations

import sys

from outbox_relay.inbox import commands, shell


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.exit(shell.run(commands.main))


if __name__ == "__main__":
    main()
