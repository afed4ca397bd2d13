"""`servicebus-inbox`, or `python -m inbox`: the commands of operators."""

from __future__ import annotations

import sys

from inbox import commands, shell


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.exit(shell.run(commands.main))


if __name__ == "__main__":
    main()
