"""The commands that the relay suggests: a shell takes them as they are meant, and each of them parses."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from argparse import Namespace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import changefeed.cli
from relay import commands
from relay.cli.main import parser
from relay.cli.suggestions import completed
from tests.support.texts import INSERTED, texts
from tests.support.watchdog import WATCHDOG_S

HOSTILE = [
    "\n'; touch pwned #",
    "v\x00x",
    "percent:a",
    "--all",
    "-",
    "=ls",
    "~root",
    "*",
    "",
    "python -m relay check; touch pwned",
    "k python -m relay quarantine add",
    "\u2019; touch pwned; \u2018",
    "$(id) `id` !x %PATH% a&b|c",
    "\x1b[201~x'\\",
    "\u202e\u00e9",
    "\ud800",
]
TEXTS = st.one_of(st.text(st.characters(), max_size=20), st.sampled_from(HOSTILE))
SHELLS = [each for each in ("dash", "bash", "zsh") if shutil.which(each)]


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=10, deadline=None)
@given(chosen=st.lists(st.tuples(TEXTS, TEXTS), min_size=20, max_size=20))
@example(chosen=list(zip(HOSTILE, reversed(HOSTILE), strict=True)))
def test_a_command_has_the_texts_of_others_as_arguments_alone(
    shell: str, chosen: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def made(key: str, identifier: str) -> list[str]:
        return [
            commands.set_aside(key, identifier),
            commands.release_key(key),
            commands.line("deadletters discard", chosen={"--reason": key, "--id": identifier}),
        ]

    given_options = Namespace(env_file=[Path("it's an.env")], source="sql")
    lines = [completed(each, given_options) for pair in chosen for each in made(*pair)]
    # As a terminal takes it: a character that it obeys would be another command.
    assert all(line.isprintable() for line in lines)

    folder = tmp_path_factory.mktemp("shell")
    # One process of the shell for all; a line that was cut or divided moves every count behind it.
    script = "".join(f"set -- {line}\nprintf '%s\\0' $# \"$@\"\n" for line in lines)
    done = subprocess.run(
        [shell], input=script.encode(), capture_output=True, cwd=folder, timeout=WATCHDOG_S, check=True
    )
    assert not list(folder.iterdir())
    words = iter(done.stdout.decode().split("\0"))
    read = [[next(words) for _ in range(int(next(words)))] for _ in lines]

    for (key, identifier), index in zip(chosen, range(0, len(lines), 3), strict=True):
        add, release, discard = (PROGRAMS["relay"].parse_args(each[3:]) for each in read[index : index + 3])
        assert (add.command, add.key, add.id) == ("quarantine add", key, identifier)
        assert (release.command, release.partition_key, release.all) == ("quarantine release", key, True)
        assert (discard.command, discard.reason, discard.id) == ("deadletters discard", key, [identifier])
        assert (discard.yes, discard.all) == (False, False)
        assert {tuple(each.env_file) for each in (add, release, discard)} == {(Path("it's an.env"),)}


# A sentence ends behind some of them, or a remark in parentheses begins.
COMMAND = re.compile(r"python -m (relay|changefeed) ([^`\n|]+?)(?=[.:,;)]+(?:\s|$)| +\(|[`\n|]|$)")

# What is no command as it stands: a name for any, and a pattern that finds them.
ANY_COMMAND = "COMMAND"
PATTERN = re.compile(r"\(\?:|\(\.\+\)")


@cache
def suggested() -> list[tuple[str, str, list[str]]]:
    """Each command in the texts: its place, its program, and its words."""
    # Every process of pytest-xdist collects these tests, and it reads only the modules that can have a command.
    return [
        (place, found[1], shlex.split(found[2]))
        for place, text in texts("relay", "changefeed", naming="python")
        if not PATTERN.search(text)
        for found in COMMAND.finditer(text.replace(INSERTED, "x"))
        if ANY_COMMAND not in found[2]
    ]


PROGRAMS = {"relay": parser(), "changefeed": changefeed.cli._parser()}


@pytest.mark.parametrize(("program", "words"), [pytest.param(*each, id=place) for place, *each in suggested()])
def test_a_command_of_a_text_parses(program: str, words: list[str]) -> None:
    try:
        PROGRAMS[program].parse_args(words)
    except SystemExit:
        pytest.fail(f"python -m {program} {shlex.join(words)}")


def test_the_commands_of_the_texts_are_found() -> None:
    assert len(suggested()) > 60


OPTIONS = Namespace(env_file=[Path("a b.env"), Path("c.env")], source="sql")


@pytest.mark.parametrize(
    "words", [words for _, program, words in suggested() if program == "relay"], ids=shlex.join
)
def test_a_completed_command_parses_with_its_options(words: list[str]) -> None:
    [_, *given] = completed(f"Run python -m relay {shlex.join(words)}", OPTIONS).partition("python -m relay ")
    found = parser().parse_args(shlex.split(given[-1]))

    assert found.env_file[:2] == OPTIONS.env_file
    assert getattr(found, "source", "sql") == "sql"


def test_a_command_with_a_source_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.cli.shell.python", lambda: "python")
    text = "See python -m relay quarantine list --source cosmos, or `python -m relay replay`."

    assert completed(text, Namespace(env_file=[], source="sql")) == (
        "See python -m relay quarantine list --source cosmos, or `python -m relay replay --source sql`."
    )
    assert completed(text, Namespace(env_file=[])) == text
