"""A command line of subcommands. Only the module of the subcommand that runs is imported."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from outbox_relay.emulators import shell
from outbox_relay.emulators.process import heed_signals

EXIT_CODES = """\
exit codes:
  0    stopped, by a signal or as --exit-with-stdin says
  1    it could not start; standard error has the reason
  2    wrong usage, or a package is missing
  141  standard output was closed before all of it was written, as by head"""
"""Of the commands that serve until they are stopped."""


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the defaults that say something, and the epilog as it is."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        explained = "default" in (action.help or "")
        return super()._get_help_string(action) if action.default and not explained else action.help


class Parser(shell.Parser):
    """A parser whose errors about numbers have an example."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("type", int, whole_number)
        self.register("type", float, number)


def whole_number(text: str) -> int:
    """Parse a whole number. Raises argparse.ArgumentTypeError."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write it as 3") from None


def positive(text: str) -> int:
    """Parse a whole number above 0. Raises argparse.ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0: write it as 100")
    return int(text)


def number(text: str) -> float:
    """Parse a number. Raises argparse.ArgumentTypeError."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: write it as 30 or 0.5") from None


class Command(Protocol):
    """The interface of a subcommand's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    async def run(self, arguments: argparse.Namespace) -> int: ...


def main(
    program: str,
    description: str,
    commands: Mapping[str, tuple[str, str]],
    argv: Sequence[str] | None = None,
    version: str | None = None,
    exit_codes: str = EXIT_CODES,
) -> int:
    """Run one subcommand; returns its exit code.

    Args:
        program: The program's name in the help text.
        description: The program's purpose, for the help text.
        commands: By name, the module of the subcommand and a line on what it does.
        argv: The arguments; those of this process by default.
        version: What `--version` prints behind the program's name; without one there is no such option.
        exit_codes: The end of the help text, of the program and of each subcommand.
    """
    argv = sys.argv[1:] if argv is None else argv
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # The SDKs log every request at INFO.
    logging.getLogger("azure").setLevel(logging.WARNING)
    epilog = f"`{program} COMMAND --help` describes each command.\n\n{exit_codes}"
    parser = Parser(prog=program, description=description, epilog=epilog, formatter_class=_Help)
    if version is not None:
        parser.add_argument("--version", action="version", version=f"{program} {version}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((argument for argument in argv if not argument.startswith("-")), None)
    modules: dict[str, Command] = {}
    for name, (module_name, summary) in commands.items():
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=exit_codes,
            formatter_class=_Help,
        )
        if name == chosen:  # it does not wait for the imports of the others
            modules[name] = cast(Command, importlib.import_module(module_name))
            modules[name].add_arguments(subparser)
    arguments = parser.parse_args(argv)
    return asyncio.run(_run(modules[arguments.command], arguments))


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    heed_signals()
    return await command.run(arguments)
