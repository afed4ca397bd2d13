"""The program `python -m outbox_relay.changefeed`, and its installed command `outbox-relay-changefeed`."""

from __future__ import annotations

import re

from cyclopts import App

from outbox_relay.changefeed.version import __version__
from outbox_relay.command_line import Program

_EXIT_CODES = """\
exit codes:
  0    done
  1    not done, try again: nothing came in time, another process is at work, or the database cannot be reached
  2    something has to be changed: the arguments, the settings or the schema
  130  interrupted (Ctrl-C)
  141  standard output was closed before all of it was written, as by head"""

_COMMANDS = ["install", "setup-feed", "keep", "drop-feed", "backfill", "prune", "read", "wait", "sweep", "status"]

# URLs with a password, and passwords of connection strings.
_SECRETS = re.compile(r"\w+://[^\s@]*:[^\s@]*@\S*|(?i:\b(pwd|password)\s*=\s*[^;\s]+)")


def redact(message: str, url: str = "") -> str:
    """Return the message without any connection string."""
    for secret in (url, url.partition("://")[2].rpartition("@")[0].partition(":")[2]):
        if secret:
            message = message.replace(secret, "…")
    return _SECRETS.sub("…", message)


def _add_commands(app: App) -> None:
    for name in _COMMANDS:
        app.command(f"outbox_relay.changefeed.commands:{name.replace('-', '_')}", name=name)


PROGRAM = Program(
    module="outbox_relay.changefeed",
    script="outbox-relay-changefeed",
    summary="Set up ordered feeds of what transactions committed, and read them.",
    epilogue=f"`python -m outbox_relay.changefeed COMMAND --help` describes each command.\n\n{_EXIT_CODES}",
    version=f"outbox-relay-changefeed {__version__}",
    add_commands=_add_commands,
    redact=redact,
)
