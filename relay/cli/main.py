"""The command line: commands, options, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from relay import __version__
from relay.cli import check, console, install, quarantine, replay, smoke
from relay.cli import run as run_worker
from relay.cli.arguments import Parser
from relay.cli.environment import with_files
from relay.cli.results import EXIT_CODES, ExitCode, Result
from relay.cli.terminal import Terminal
from relay.clients import switch_off_sdk_tracing
from relay.errors import ServiceError, SettingsError, UsageError
from relay.settings import Settings

EXAMPLES = f"""\
examples:
  python -m relay check
  python -m relay quarantine list
  python -m relay quarantine release --reason message-refused
  python -m relay smoke --subscription all
  python -m relay replay --from 1h --dry-run

The commands use the settings of the function app, from the environment or from --env-file; docs/settings.md lists
them. `python -m relay COMMAND --help` describes each command.

{EXIT_CODES}"""


def parser() -> Parser:
    """The parser of the whole command line."""
    common = Parser(add_help=False)
    common.add_argument(
        "--env-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="read settings from this file of NAME=value lines; the file takes precedence over the environment, "
        "and a later file over an earlier one",
    )
    common.add_argument("--json", action="store_true", help="print one JSON object")
    common.add_argument(
        "--verbose", action="store_true", help="show the log of the relay and of the SDKs on standard error"
    )
    top = Parser(
        prog="python -m relay",
        description="Check and test an Outbox Relay, manage its quarantine, and publish events again.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"outbox-relay {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, epilog: str, *parents: Parser) -> Parser:
        return commands.add_parser(
            name,
            parents=parents,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"{epilog}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    check.add_arguments(add("check", "validate the settings and the resources they name", check.EXAMPLES, common))
    smoke.add_arguments(
        add("smoke", "send one event through the deployed app and compare what arrives", smoke.EXAMPLES, common)
    )
    quarantine.add_arguments(
        add("quarantine", "manage documents that could not be published", quarantine.EXAMPLES), common
    )
    replay.add_arguments(add("replay", "publish events of the outbox again", replay.EXAMPLES, common))
    install.add_arguments(
        add("install", "create what the relay needs in an SQL database", install.EXAMPLES, common)
    )
    console.add_arguments(add("console", "serve a page that shows where events are", console.EXAMPLES, common))
    run_worker.add_arguments(add("run", "publish from an SQL outbox until stopped", run_worker.EXAMPLES, common))
    return top


def main(words: Sequence[str]) -> int:
    """Run one command with the environment of the process; returns the exit code. Wrong usage raises
    SystemExit(2)."""
    switch_off_sdk_tracing()
    arguments = parser().parse_args(words)
    terminal = Terminal(as_json=arguments.json)
    # The log of a worker is what one watches.
    _set_up_logging(terminal, verbose=arguments.verbose or arguments.command == "run")
    try:
        return asyncio.run(run(arguments, os.environ, terminal))
    except KeyboardInterrupt:
        terminal.note("Interrupted.")
        terminal.show(_name(arguments), Result(ExitCode.INTERRUPTED, {"error": "interrupted"}))
        return int(ExitCode.INTERRUPTED)


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> int:
    """Run one command and print its result; returns the exit code."""
    result = await _result(arguments, environment, terminal)
    terminal.show(_name(arguments), result)
    return int(result.code)


async def _result(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    try:
        whole = with_files(environment, arguments.env_file)
        if arguments.command == "check":
            return await check.run(arguments, whole)
        settings = Settings.from_environment(whole)
        if arguments.command == "install":
            return await install.run(arguments, settings)
        if arguments.command == "run":
            return await run_worker.run(settings, whole)
        if arguments.command == "console":
            return await console.run(arguments, settings, whole)
        if arguments.command == "smoke":
            return await smoke.run(arguments, settings, whole, terminal)
        if arguments.command == "quarantine":
            return await quarantine.run(arguments, settings, terminal)
        return await replay.run(arguments, settings, terminal)
    except (UsageError, SettingsError) as error:
        return _failed(ExitCode.USAGE, error, terminal)
    except ServiceError as error:
        return _failed(ExitCode.SERVICE, error, terminal)


def _failed(code: ExitCode, error: Exception, terminal: Terminal) -> Result:
    terminal.note(f"error: {error}")
    return Result(code, {"error": str(error)})


def _name(arguments: argparse.Namespace) -> str:
    if arguments.command == "quarantine":
        return f"quarantine {arguments.quarantine_command}"
    return str(arguments.command)


def _set_up_logging(terminal: Terminal, *, verbose: bool) -> None:
    logging.basicConfig(
        handlers=[terminal.log_handler()],
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if not verbose:
        # The command reports the errors of the SDKs itself.
        logging.getLogger("azure").setLevel(logging.CRITICAL)
