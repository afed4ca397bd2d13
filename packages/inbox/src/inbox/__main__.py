"""`python -m inbox`: the commands of operators."""

from __future__ import annotations

import sys

from inbox import shell
from inbox.commands import main

if __name__ == "__main__":
    sys.exit(shell.run(main))
