"""A command line of subcommands. Only the module of the subcommand that runs is imported."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from outbox_emulators.process import heed_signals


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return super()._get_help_string(action) if action.default else action.help


class Command(Protocol):
    """The interface of a subcommand's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    async def run(self, arguments: argparse.Namespace) -> int: ...


def main(
    program: str,
    description: str,
    commands: Mapping[str, tuple[str, str]],
    argv: Sequence[str] | None = None,
) -> int:
    """Run one subcommand; returns its exit code.

    Args:
        program: The program's name in the help text.
        description: The program's purpose, for the help text.
        commands: By name, the module of the subcommand and a line on what it does.
        argv: The arguments; those of this process by default.
    """
    argv = sys.argv[1:] if argv is None else argv
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # The SDKs log every request at INFO.
    logging.getLogger("azure").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(prog=program, description=description)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((argument for argument in argv if not argument.startswith("-")), None)
    modules: dict[str, Command] = {}
    for name, (module_name, summary) in commands.items():
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=summary,
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
