"""`python -m local`: the local stack, for development and tests only."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import sys
from typing import Protocol, cast

from local.process import heed_signals


class Command(Protocol):
    """What every subcommand's module has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    async def run(self, arguments: argparse.Namespace) -> int: ...


_COMMANDS = {
    "up": ("local.stack.command", "start the whole stack: cosmos, servicebus and functions"),
    "demo": ("local.demo.command", "drive the contact service on a stack of its own, and count what arrives"),
    "chaos": ("local.chaos.command", "a seeded fault campaign, and what it did to the guarantees"),
    "soak": ("local.soak.command", "very many events through one relay, and whether its memory stays flat"),
    "provision": ("local.stack.provision", "create the database and its containers on an account or emulator"),
    "cosmos": ("local.cosmos.command", "start only the Cosmos DB part"),
    "servicebus": ("local.servicebus.command", "start only the Service Bus part"),
    "functions": ("local.functions.command", "start only a Functions host, against services that run already"),
    "contacts": ("local.demo.service", "start only the contact service's API, against services that run already"),
}


def main(argv: list[str]) -> int:
    """Run one subcommand; returns its exit code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # The SDKs tell every request at INFO: that is noise here.
    logging.getLogger("azure").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((argument for argument in argv if not argument.startswith("-")), None)
    modules: dict[str, Command] = {}
    for name, (module_name, summary) in _COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=summary,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        if name == chosen:  # a part must not wait for the imports of the others
            modules[name] = cast(Command, importlib.import_module(module_name))
            modules[name].add_arguments(subparser)
    arguments = parser.parse_args(argv)
    return asyncio.run(_run(modules[arguments.command], arguments))


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    heed_signals()
    return await command.run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
