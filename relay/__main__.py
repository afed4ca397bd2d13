"""`python -m relay`: the commands for operators."""

from __future__ import annotations

import sys

from relay.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
