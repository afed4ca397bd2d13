"""The programs of the repository, as the tests of the pages ask them: whether words parse, which options exist."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from cyclopts.argument import Argument

from outbox_relay.command_line import Program

_HANDLED = ("--help", "-h", "--version")


class CommandLine(Protocol):
    """A program with commands."""

    def parse(self, words: Sequence[str]) -> Any:
        """Parse words; wrong usage raises SystemExit."""

    def options(self) -> Set[str]:
        """Return all options of all commands."""

    def within(self, words: Sequence[str]) -> CommandLine:
        """Return the command that these words begin with, or this program."""

    def leaves(self) -> Iterator[list[str]]:
        """Yield the words of each command that has no further ones."""


async def run(program: Program, *words: str) -> Any:
    """Run a command of a program here; return what its function returns. Wrong usage raises SystemExit."""
    call = program.parse(words)
    return await call.function(*call.positional, **call.options)


@dataclass(frozen=True)
class WithCyclopts:
    """A program that uses cyclopts, or one of its commands."""

    program: Program
    words: tuple[str, ...] = ()

    def parse(self, words: Sequence[str]) -> Any:
        return self.program.parse([*self.words, *words])

    def options(self) -> Set[str]:
        return _options(self)

    def within(self, words: Sequence[str]) -> CommandLine:
        return self._at(words[0]).within(words[1:]) if words and words[0] in self._commands() else self

    def leaves(self) -> Iterator[list[str]]:
        if not self._commands():
            yield []
        for name in self._commands():
            yield from ([name, *words] for words in self._at(name).leaves())

    def undescribed(self, words: Sequence[str]) -> list[str]:
        """Return the names of the arguments of a command that the help does not describe."""
        of_command = WithCyclopts(self.program, tuple(words)).arguments()
        return [each.name for each in of_command if not each.parameter.help]

    def arguments(self) -> list[Argument]:
        """Return the arguments of the command itself that its help shows."""
        root = self.program.app()
        apps = root.parse_commands(self.words)[1]
        if apps[-1].default_command is None:
            return []
        with root.app_stack(apps):
            return [
                each
                for each in apps[-1].assemble_argument_collection(parse_docstring=True)
                if each.parse and each.show
            ]

    def _commands(self) -> list[str]:
        return [name for name in _names(self) if not name.startswith("-")]

    def _at(self, name: str) -> WithCyclopts:
        return WithCyclopts(self.program, (*self.words, name))


@cache
def _names(line: WithCyclopts) -> tuple[str, ...]:
    """Return the names of the commands, and of the options that act as commands."""
    return tuple(line.program.app().parse_commands(line.words)[1][-1].resolved_commands())


@cache
def _options(line: WithCyclopts) -> Set[str]:
    names = {name for each in line.arguments() for name in each.names if name.startswith("-")}
    inner = [WithCyclopts(line.program, (*line.words, name)) for name in _names(line) if name not in _HANDLED]
    return {*names, *_names(line)}.union(*map(_options, inner)) - {
        name for name in _names(line) if not name.startswith("-")
    }


@dataclass(frozen=True)
class WithArgparse:
    """A program that uses argparse."""

    parser: argparse.ArgumentParser

    def parse(self, words: Sequence[str]) -> Any:
        return self.parser.parse_args(words)

    def options(self) -> set[str]:
        inner = self._commands()
        return set(self.parser._option_string_actions).union(*(each.options() for each in inner.values()))

    def within(self, words: Sequence[str]) -> CommandLine:
        inner = self._commands()
        return inner[words[0]].within(words[1:]) if words and words[0] in inner else self

    def leaves(self) -> Iterator[list[str]]:
        if not self._commands():
            yield []
        for name, inner in self._commands().items():
            yield from ([name, *words] for words in inner.leaves())

    def _commands(self) -> dict[str, WithArgparse]:
        actions = [each for each in self.parser._actions if isinstance(each, argparse._SubParsersAction)]
        return {name: WithArgparse(inner) for each in actions for name, inner in each.choices.items()}
