"""`python -m changefeed`: the commands."""

from __future__ import annotations

import sys

from changefeed import shell
from changefeed.cli import main

if __name__ == "__main__":
    sys.exit(shell.run(lambda: main(sys.argv[1:])))
