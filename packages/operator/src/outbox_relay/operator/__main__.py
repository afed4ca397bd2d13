"""The installed command `outbox-relay`: the same program as `python -m relay`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    """Run the command that the arguments of the process choose; return the exit code."""
    if find_spec("relay") is None:
        # An editable installation does not have the package, which is in the clone.
        sys.path.append(str(Path(__file__).resolve().parents[5]))
    from relay.__main__ import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
