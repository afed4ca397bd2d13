"""`python -m relay`: the commands for operators."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

from relay.cli import shell

try:
    from relay.cli.main import main
except ImportError as error:
    _old = sys.version_info < (3, 11)
    _missing = (error.name or "").partition(".")[0]
    if not _old and (not isinstance(error, ModuleNotFoundError) or _missing in ("relay", "changefeed")):
        raise
    _root = Path(__file__).resolve().parents[1]
    _why = f"the package {_missing!r} is missing from {sys.executable}"
    _remedy = f"Run {shell.python()} -m pip install -r {quote(str(_root / 'requirements.txt'))}"
    if _old:
        _why = f"{sys.executable} is older than Python 3.11"
        _remedy = "Use a newer one"
    _prepared = _root / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if _prepared.exists():
        _remedy += f", or use {quote(str(_prepared))} -m relay"
    print(f"relay: {_why}. {_remedy}.", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(shell.run(lambda: main(sys.argv[1:])))
