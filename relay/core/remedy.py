"""Remedies: commands of `python -m relay` as values, and sentences that have them.

An error, a finding or a report holds a `Remedy`. The place that shows it to a person knows how that person starts
`python -m relay` (`Invocation`), and renders the remedy once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote as urlquote
from urllib.parse import unquote

ENCODED = "percent:"
"""The beginning of an argument whose rest is percent-encoded UTF-8 (RFC 3986), lone surrogates included."""

# No letter or digit of any script is syntax of a shell. zsh expands a word that begins with `=`, PowerShell one
# that begins with `@`; it makes two words of one with a comma. A text that begins as an encoded one is encoded.
_BARE = re.compile(rf"(?!{ENCODED})[^\W_][\w.:/+=@-]*")
_QUOTABLE = re.compile(rf"(?!{ENCODED}|-)[\w.:/+=@,#~*?;()\[\]{{}} -]+")

# By option, the commands that work on everything that the option would choose from, or on nothing of it.
_WITHOUT = {
    "source": ("check", "deadletters", "explain", "install", "run"),
    "stream": ("check", "install", "run"),
}

_ADD = "quarantine add"

AZURE_CLI = "az"
"""The program of a remedy that is a command of the Azure CLI."""


def shell_word(text: str) -> str:
    """Return a word that shells read alike, and that `parsed_word` reads as `text`.

    The alphabet of a bare word and of a quoted one has no character with a meaning in a POSIX shell, fish,
    PowerShell or cmd.exe. Any other text is percent-encoded, so it can hold no command, no option, and nothing
    that `set_aside_at_end` would take for a command.

    The tests run dash, bash, zsh and fish. PowerShell was not run. In cmd.exe, single quotes do not quote: a text
    with a space becomes several words, which are refused as arguments, and still no command.
    """
    if _BARE.fullmatch(text):
        return text
    if _QUOTABLE.fullmatch(text) and "python -m" not in text:
        return f"'{text}'"
    return ENCODED + urlquote(text, safe="", errors="surrogatepass")


def parsed_word(word: str) -> str:
    """Decode an argument as `shell_word` encodes it, and return its text.

    Raises:
        ValueError: It begins with `ENCODED`, and what follows is no percent-encoded UTF-8.
    """
    if not word.startswith(ENCODED):
        return word
    return unquote(word.removeprefix(ENCODED), errors="surrogatepass")


def _option(name: str, text: str) -> str:
    word = shell_word(text)
    return f"'{name}={text}'" if word.startswith("'") else f"{name}={word}"


@dataclass(frozen=True, slots=True)
class Invocation:
    """The way in which the reader of a remedy starts `python -m relay`; by default that of the documentation.

    Attributes:
        python: The command that starts Python from the reader's shell.
        env_files: The files of `--env-file`, in their order.
        source: The outbox that the reader works on; None if there is only one.
        stream: The stream that the reader works on; None if there is only one.
    """

    python: str = "python"
    env_files: tuple[str, ...] = ()
    source: str | None = None
    stream: str | None = None


PLAIN = Invocation()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A command for a person to run.

    Attributes:
        command: The command's own words.
        texts: Its positional arguments: the texts of others, each of which stays one argument.
        options: Words of our own, such as `--all`.
        chosen: Options whose values are texts of others, with their names.
        source: The outbox that it is about; None for that of the reader.
        stream: The stream that it is about; None for that of the reader.
        program: The module that has the command, or AZURE_CLI. Only `relay` takes the options of an invocation.
    """

    command: str
    texts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    chosen: tuple[tuple[str, str], ...] = ()
    source: str | None = None
    stream: str | None = None
    program: str = "relay"

    def render(self, by: Invocation) -> str:
        """Return the command line that the reader pastes into a shell."""
        start = [] if self.program == AZURE_CLI else [by.python, "-m"]
        words = [*start, self.program, self.command]
        if self.program == "relay":
            words += [f"--env-file {shlex.quote(file)}" for file in by.env_files]
            words += self._choice("source", self.source or by.source)
            words += self._choice("stream", self.stream or by.stream)
        values = [_option(name, text) for name, text in self.chosen]
        return " ".join([*words, *self.options, *values, *map(shell_word, self.texts)])

    def _choice(self, name: str, value: str | None) -> list[str]:
        if value is None or self.command.split()[0] in _WITHOUT[name]:
            return []
        return [f"--{name} {shlex.quote(value)}"]

    def about(self, work: Invocation) -> Remedy:
        """Return this remedy for the outbox and the stream of `work`, unless it has its own."""
        return replace(self, source=self.source or work.source, stream=self.stream or work.stream)

    def __str__(self) -> str:
        return self.render(PLAIN)


class Sentence(str):
    """A text whose commands are values. As a str, it has them as the documentation does.

    Build a longer text from it as another Sentence: an f-string would make its commands words.
    """

    parts: tuple[str | Remedy, ...]

    def __new__(cls, *parts: str | Remedy) -> Sentence:
        """Join texts and remedies."""
        flat: list[str | Remedy] = []
        for part in parts:
            flat += part.parts if isinstance(part, Sentence) else (part,)
        made = super().__new__(cls, "".join(map(str, flat)))
        made.parts = tuple(flat)
        return made

    @classmethod
    def of(cls, text: str, *parts: str | Remedy) -> Sentence:
        """Fill each `{}` of a text of our own, which has no text of others in it, with one of the parts."""
        first, *others = text.split("{}")
        return cls(first, *(each for pair in zip(parts, others, strict=True) for each in pair))

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> Sentence:
        """Join lines, some of which may be sentences."""
        first, *others = lines
        return cls(first, *(part for line in others for part in ("\n", line)))

    def render(self, by: Invocation) -> str:
        """Return the text with each command as its reader pastes it."""
        return "".join(part.render(by) if isinstance(part, Remedy) else part for part in self.parts)

    def about(self, work: Invocation) -> Sentence:
        """Return the text with each command about the outbox and the stream of `work`, unless it has its own."""
        return Sentence(*(part.about(work) if isinstance(part, Remedy) else part for part in self.parts))


def render(text: str | Remedy, by: Invocation) -> str:
    """Return a text that may be a sentence, or a remedy, as its reader pastes its commands."""
    return text.render(by) if isinstance(text, Remedy | Sentence) else text


CHECK = Remedy("check")
SCAN = Remedy("check", options=("--scan",))
LIST = Remedy("quarantine list")
INSTALL = Sentence(Remedy("install", options=("--keep", "30d")), " (or however long positions are to be kept)")
"""The command that makes what is missing in an SQL database; the duration is the operator's decision."""


def set_aside(partition_key: str, identifier: str) -> Remedy:
    """Return the command that orders an event to be set aside."""
    return Remedy(_ADD, (partition_key, identifier))


SET_ANY_ASIDE = set_aside("KEY", "ID")
"""The command that orders an event to be set aside, for a text that is about no event in particular."""


def discard(record_id: str) -> Remedy:
    """Return the command that discards a record of the quarantine, or withdraws an order."""
    return Remedy("quarantine discard", (record_id,))


def release_key(partition_key: str) -> Remedy:
    """Return the command that releases every record of a key in order, which unparks it."""
    return Remedy("quarantine release", options=("--all",), chosen=(("--partition-key", partition_key),))


def set_aside_at_end(line: str) -> Remedy | None:
    """Return the order to set an event aside with which a line of a log ends; None if it ends with none.

    A log of another process has nothing but text. Only what `Remedy.render` writes is such an order: no text of
    others in the line can be taken for one, as a word with a command is encoded.
    """
    _, begin, rest = line.rpartition(f"{Remedy(_ADD)} ")
    try:
        *options, key, identifier = shlex.split(rest)
        choice = dict(zip(options[::2], options[1::2], strict=True))
        found = set_aside(parsed_word(key), parsed_word(identifier))
    except ValueError:
        return None
    found = replace(found, source=choice.get("--source"), stream=choice.get("--stream"))
    return found if str(found) == begin + rest else None
