"""`python -m relay`: the commands for operators, which are in the package `outbox_relay.operator`."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

_ROOT = Path(__file__).resolve().parents[1]
_BESIDE = [_ROOT / "packages" / name for name in ("command_line", "operator")]
_IS_CLONE = all(each.is_dir() for each in _BESIDE)
if _IS_CLONE:
    # After what is installed.
    sys.path += [str(each / "src") for each in _BESIDE]


def _explain(error: ImportError) -> str | None:
    """Return the sentence about a missing package, with the command that installs it; None for another error."""
    if sys.version_info < (3, 11):  # noqa: UP036
        return f"{sys.executable} is older than Python 3.11. Use a newer one."
    ours = ("outbox_relay.command_line", "outbox_relay.operator")
    missing = error.name if error.name in ("outbox_relay", *ours) else (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or missing == "relay":
        return None
    if missing == "outbox_relay" and error.name != missing:
        return None
    if _IS_CLONE and missing in ours:
        return None
    named = [quote(str(each)) for each in _BESIDE] if _IS_CLONE else ["outbox-relay-operator"]
    remedy = f"Run {quote(sys.executable)} -m pip install {' '.join(named)}"
    prepared = _ROOT / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if prepared.exists():
        remedy += f", or use {quote(str(prepared))} -m relay"
    return f"the package {missing!r} is missing from {sys.executable}. {remedy}."


def run() -> int:
    """Run the command that the arguments of the process choose; return the exit code."""
    try:
        from outbox_relay.operator.cli.main import script

        return script()
    except ImportError as error:
        problem = _explain(error)
        if problem is None:
            raise
        print(f"relay: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
