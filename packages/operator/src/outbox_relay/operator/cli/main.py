"""The command line: commands, options, exit codes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from cyclopts import App

from outbox_relay.command_line import Call, Program
from outbox_relay.command_line import run as run_program
from outbox_relay.operator.cli.options import Options, Session, with_files
from outbox_relay.operator.cli.terminal import EXIT_CODES, ExitCode, Result, Terminal
from relay import __version__
from relay.config.clients import switch_off_sdk_tracing
from relay.core.errors import ServiceError, SettingsError, SourceError, StoreError, UsageError
from relay.core.remedy import ENCODED, parsed_word

EXAMPLES = f"""\
examples:
  python -m relay check
  python -m relay quarantine list
  python -m relay quarantine release --reason message-refused
  python -m relay deadletters list
  python -m relay smoke --subscription all
  python -m relay replay --from 1h --dry-run

The commands use the settings of the function app, from the environment or from --env-file; docs/settings.md lists
them. `python -m relay COMMAND --help` describes each command.

{EXIT_CODES}"""

_COMMANDS = {
    "check": "Validate the settings and the resources they name.",
    "explain": "Show what becomes of an event.",
    "smoke": "Send one event through the deployed app and compare what arrives.",
    "quarantine": "Manage documents that could not be published.",
    "deadletters": "Manage the dead letters of the topic's subscriptions, or of the queue.",
    "replay": "Publish events of the outbox again.",
    "install": "Create what the relay needs in an SQL database.",
    "console": "Serve a page that shows where events are.",
    "run": "Publish from an SQL outbox until stopped.",
}


def _add_commands(app: App) -> None:
    for name, summary in _COMMANDS.items():
        # Imported once it is chosen: the SDKs take seconds.
        app.command(f"{__package__}.{name}:app", name=name, help=summary)


def _read_word(word: str) -> str:
    try:
        return parsed_word(word)
    except ValueError:
        raise ValueError(f"what follows {ENCODED} is no percent-encoded UTF-8") from None


PROGRAM = Program(
    module="relay",
    script="outbox-relay",
    summary="Check and test an Outbox Relay, manage its quarantine, and publish events again.",
    epilogue=EXAMPLES,
    version=f"outbox-relay {__version__}",
    add_commands=_add_commands,
    read_word=_read_word,
)


def script() -> int:
    """Run the command that the arguments of the process choose; return the exit code."""
    return run_program(lambda: main(sys.argv[1:]))


def main(words: Sequence[str]) -> int:
    """Run one command with the environment of the process; return the exit code.

    Wrong usage raises SystemExit(2).
    """
    call = PROGRAM.parse(words)
    switch_off_sdk_tracing()
    options = options_of(call)
    terminal = Terminal(as_json=options.json)
    # The log of a worker is what one watches.
    _set_up_logging(terminal, verbose=options.verbose or call.name == "run")
    try:
        return asyncio.run(run(call, os.environ, terminal))
    except KeyboardInterrupt:
        terminal.note("Interrupted.")
        terminal.show(call.name, Result(ExitCode.INTERRUPTED, {"error": "interrupted"}))
        return int(ExitCode.INTERRUPTED)
    finally:
        terminal.end_progress()


def options_of(call: Call) -> Options:
    """Return the common options of a command."""
    options: Options = call.options["options"]
    return options


async def run(call: Call, environment: Mapping[str, str], terminal: Terminal) -> int:
    """Run one command and print its result; returns the exit code."""
    options = options_of(call)
    by = options.invocation
    try:
        session = Session(with_files(environment, options.env_file), terminal)
        result: Result = await call.function(*call.positional, **call.options, session=session)
    except (UsageError, SettingsError, ServiceError, StoreError, SourceError) as error:
        said = error.sentence.render(by)
        terminal.note(f"error: {said}")
        code = ExitCode.USAGE if isinstance(error, UsageError | SettingsError) else ExitCode.SERVICE
        result = Result(code, {"error": said})
    terminal.show(call.name, result, by)
    return int(result.code)


def _set_up_logging(terminal: Terminal, *, verbose: bool) -> None:
    logging.basicConfig(
        handlers=[terminal.log_handler()],
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if not verbose:
        # The command reports the errors of the SDKs itself.
        logging.getLogger("azure").setLevel(logging.CRITICAL)
