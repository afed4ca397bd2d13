"""`sql-changefeed`, or `python -m changefeed`: the commands."""

from __future__ import annotations

import sys

from changefeed import cli, shell


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.exit(shell.run(lambda: cli.main(sys.argv[1:])))


if __name__ == "__main__":
    main()
