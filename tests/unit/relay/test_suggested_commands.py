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

import changefeed.cli
from relay import commands
from relay.cli.main import parser
from relay.cli.suggestions import completed
from tests.support.texts import INSERTED, texts


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "it's",
        "--all",
        "$(id) `id` !x",
        "a\nb\t",
        "\x1b[201~x'\\",
        "\u202e\u00e9",
        "\U000e0001",
        "",
        "\N{PILE OF POO}",
    ],
)
def test_a_word_of_a_command_means_the_text_to_a_shell(text: str) -> None:
    word = commands.shell_word(text)

    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    echoed = subprocess.run(
        [bash, "-c", f"printf %s {word}"], capture_output=True, timeout=10, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert echoed.stdout.decode() == text
    assert word.isprintable()


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
