"""`outbox-relay-emulators`, or `python -m outbox_relay.emulators`: one of the emulators in the foreground."""

from __future__ import annotations

import shlex
import sys

_EXTRAS = {
    **dict.fromkeys(("outbox_relay.command_line", "cyclopts", "rich"), "cli"),
    "proton": "servicebus",
    "cryptography": "tls",
    "azure": "functions",
    "dotenv": "functions",
}
"""By imported package, the extra that installs it."""


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        from outbox_relay.command_line import run
        from outbox_relay.emulators import program

        sys.exit(run(lambda: program.main(program.PROGRAM, sys.argv[1:])))
    except ModuleNotFoundError as error:
        missing = error.name or ""
        package = missing if missing in _EXTRAS else missing.partition(".")[0]
        if package == "outbox_relay":
            raise
        extra = _EXTRAS.get(package)
        wanted = "outbox-relay-emulators" if extra is None else f"'outbox-relay-emulators[{extra}]'"
        remedy = f"Run {shlex.quote(sys.executable)} -m pip install {wanted}"
        print(f"outbox-relay-emulators: the package {package!r} is missing. {remedy}.", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
