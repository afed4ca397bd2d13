"""`python -m relay`: the commands for operators, which are in the package `outbox_relay.operator`."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

_ROOT = Path(__file__).resolve().parents[1]
_BESIDE = _ROOT / "packages" / "operator" / "src"
if _BESIDE.is_dir():
    # After what is installed.
    sys.path.append(str(_BESIDE))

try:
    from outbox_relay.operator.cli import shell
except ModuleNotFoundError as error:
    if error.name not in ("outbox_relay", "outbox_relay.operator"):
        raise
    print(
        f"relay: the package 'outbox_relay.operator' is missing from {sys.executable}. Install "
        "outbox-relay-operator with pip, or run this command in a clone of the repository, which has it in "
        "packages/operator.",
        file=sys.stderr,
    )
    sys.exit(2)

try:
    from outbox_relay.operator.cli.main import main
except ImportError as error:
    _old = sys.version_info < (3, 11)
    _missing = (error.name or "").partition(".")[0]
    if not _old and (not isinstance(error, ModuleNotFoundError) or _missing in ("relay", "outbox_relay")):
        raise
    _why = f"the package {_missing!r} is missing from {sys.executable}"
    _remedy = f"Run {shell.python()} -m pip install -r {quote(str(_ROOT / 'requirements.txt'))}"
    if _old:
        _why = f"{sys.executable} is older than Python 3.11"
        _remedy = "Use a newer one"
    _prepared = _ROOT / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if _prepared.exists():
        _remedy += f", or use {quote(str(_prepared))} -m relay"
    print(f"relay: {_why}. {_remedy}.", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(shell.run(lambda: main(sys.argv[1:])))
