"""The command line: commands, options, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Mapping, Sequence

from outbox_relay.operator.cli import check, console, deadletters, explain, install, quarantine, replay, smoke
from outbox_relay.operator.cli import run as worker
from outbox_relay.operator.cli.arguments import Commands, Parser, invocation_of, with_files
from outbox_relay.operator.cli.terminal import EXIT_CODES, ExitCode, Result, Terminal
from relay import __version__
from relay.config.clients import switch_off_sdk_tracing
from relay.core.errors import ServiceError, SettingsError, SourceError, StoreError, UsageError

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


def parser() -> Parser:
    top = Parser(
        prog="python -m relay",
        description="Check and test an Outbox Relay, manage its quarantine, and publish events again.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"outbox-relay {__version__}")
    commands = Commands(top)
    for command in (check, explain, smoke, quarantine, deadletters, replay, install, console, worker):
        command.add_to(commands)
    return top


def main(words: Sequence[str]) -> int:
    """Run one command with the environment of the process; return the exit code.

    Wrong usage raises SystemExit(2).
    """
    switch_off_sdk_tracing()
    arguments = parser().parse_args(words)
    terminal = Terminal(as_json=arguments.json)
    # The log of a worker is what one watches.
    _set_up_logging(terminal, verbose=arguments.verbose or arguments.command == "run")
    try:
        return asyncio.run(run(arguments, os.environ, terminal))
    except KeyboardInterrupt:
        terminal.note("Interrupted.")
        terminal.show(arguments.command, Result(ExitCode.INTERRUPTED, {"error": "interrupted"}))
        return int(ExitCode.INTERRUPTED)


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> int:
    """Run one command and print its result; returns the exit code."""
    by = invocation_of(arguments)
    try:
        result: Result = await arguments.run(arguments, with_files(environment, arguments.env_file), terminal)
    except (UsageError, SettingsError, ServiceError, StoreError, SourceError) as error:
        said = error.sentence.render(by)
        terminal.note(f"error: {said}")
        code = ExitCode.USAGE if isinstance(error, UsageError | SettingsError) else ExitCode.SERVICE
        result = Result(code, {"error": said})
    terminal.show(arguments.command, result, by)
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
