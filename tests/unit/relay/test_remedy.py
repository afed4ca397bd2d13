"""Remedies: a shell takes them as they are meant, their readers get their options, and sentences keep them."""

from __future__ import annotations

import ast
import copy
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import outbox_relay.changefeed.program
from outbox_relay.operator.cli.deadletter_selection import Selection
from outbox_relay.operator.cli.main import PROGRAM, options_of
from outbox_relay.operator.cli.quarantine import Choice
from relay.core.errors import UsageError
from relay.core.remedy import (
    INSTALL,
    SET_ANY_ASIDE,
    Invocation,
    Remedy,
    Sentence,
    discard,
    release_key,
    render,
    set_aside,
    set_aside_at_end,
    shell_word,
)
from tests.support.pages import PRODUCT, ROOT

PROGRAMS: dict[str, Callable[[list[str]], Any]] = {
    "relay": PROGRAM.parse,
    "outbox_relay.changefeed": outbox_relay.changefeed.program.PROGRAM.parse,
}

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
# By shell, what makes `show` print the number of its words, and each of them.
SHELLS = {
    **dict.fromkeys(("dash", "bash", "zsh"), """show() { printf '%s\\0' $# "$@"; }"""),
    "fish": "function show; printf '%s\\0' (count $argv) $argv; end",
}
# The shells that have to be there: CI names those that it installs.
NEEDED = os.environ.get("TEST_SHELLS", "").split()


@pytest.mark.parametrize("shell", [each for each in SHELLS if each in NEEDED or shutil.which(each)])
@settings(max_examples=10, deadline=None)
@given(chosen=st.lists(st.tuples(TEXTS, TEXTS), min_size=5, max_size=5))
@example(chosen=list(zip(HOSTILE, reversed(HOSTILE), strict=True)))
def test_a_command_has_the_texts_of_others_as_arguments_alone(
    shell: str, chosen: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def made(key: str, identifier: str) -> list[Remedy]:
        return [
            set_aside(key, identifier),
            release_key(key),
            Remedy("deadletters discard", chosen=(("--reason", key), ("--id", identifier))),
        ]

    by = Invocation(env_files=("it's an.env",), source="sql")
    lines = [each.render(by) for pair in chosen for each in made(*pair)]
    # As a terminal takes it: a character that it obeys would be another command.
    assert all(line.isprintable() for line in lines)

    folder = tmp_path_factory.mktemp("shell")
    # One process of the shell for all; a line that was cut or divided moves every count behind it.
    script = "\n".join([SHELLS[shell], *(f"show {line}" for line in lines), ""])
    done = subprocess.run([shell], input=script.encode(), capture_output=True, cwd=folder, timeout=60, check=True)
    assert not list(folder.iterdir())
    words = iter(done.stdout.decode().split("\0"))
    read = [[next(words) for _ in range(int(next(words)))] for _ in lines]

    for (key, identifier), index in zip(chosen, range(0, len(lines), 3), strict=True):
        add, release, discard = (PROGRAM.parse(each[3:]) for each in read[index : index + 3])
        assert (add.name, add.positional) == ("quarantine add", (key, identifier))
        assert release.name == "quarantine release"
        assert release.options["choice"] == Choice(all=True, partition_key=key)
        assert discard.name == "deadletters discard"
        assert discard.options["selection"] == Selection(reason=key, id=(identifier,))
        assert (discard.options["yes"], discard.options["all"]) == (False, False)
        assert {options_of(each).env_file for each in (add, release, discard)} == {(Path("it's an.env"),)}


@pytest.mark.parametrize(
    "text", ["contact-5", "a@b.example/1:2", "MaxDeliveryCountExceeded", "\N{CJK UNIFIED IDEOGRAPH-9375}"]
)
def test_a_usual_text_is_shown_as_it_is(text: str) -> None:
    assert shell_word(text) == text
    assert shell_word(f"{text} (2)") == f"'{text} (2)'"


def test_a_word_that_is_no_percent_encoded_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse(["quarantine", "add", "percent:%ff", "x"])

    assert "no percent-encoded UTF-8" in capsys.readouterr().err


def remedies() -> Iterator[Remedy]:
    """Each remedy that the code makes of nothing but literals, and one of each function that makes some."""
    yield from (set_aside("k", "i"), discard("3f1c0a92"), release_key("k"), SET_ANY_ASIDE)
    yield from (part for part in INSTALL.parts if isinstance(part, Remedy))
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        if "Remedy(" not in (text := path.read_text("utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Remedy":
                with suppress(ValueError):
                    named = {each.arg: ast.literal_eval(each.value) for each in node.keywords if each.arg}
                    yield Remedy(*map(ast.literal_eval, node.args), **named)


BY = Invocation("python", ("a b.env", "c.env"), "sql", "orders in")


@pytest.mark.parametrize("remedy", dict.fromkeys(remedies()), ids=str)
def test_a_remedy_parses_with_the_options_of_its_reader(remedy: Remedy) -> None:
    line = remedy.render(BY)

    found = PROGRAMS[remedy.program](shlex.split(line)[3:])

    if remedy.program == "relay":
        options = options_of(found)
        assert options.env_file == (Path("a b.env"), Path("c.env"))
        assert getattr(options, "source", "sql") == "sql"
        assert getattr(options, "stream", "orders in") in ("orders in", None)
    else:
        assert line == str(remedy)


def test_the_remedies_of_the_code_are_found() -> None:
    assert {"check", "replay", "explain", "keep", "install"} <= {each.command for each in remedies()}


def test_a_remedy_about_an_outbox_and_a_stream_keeps_them() -> None:
    remedy = Remedy("quarantine list", source="cosmos")

    assert remedy.render(Invocation(source="sql")) == "python -m relay quarantine list --source cosmos"
    assert remedy.about(Invocation(source="sql", stream="b")).render(Invocation(stream="c")) == (
        "python -m relay quarantine list --source cosmos --stream b"
    )
    assert Remedy("check").render(Invocation(source="sql", stream="b")) == "python -m relay check"


def test_a_sentence_is_its_plain_text_and_keeps_its_remedies() -> None:
    inner = Sentence.of("Run `{}`.", Remedy("replay"))
    whole = Sentence.of_lines(["First", Sentence("  ", inner), "last"])

    assert whole == "First\n  Run `python -m relay replay`.\nlast"
    assert whole.render(Invocation("py", stream="b")) == "First\n  Run `py -m relay replay --stream b`.\nlast"
    assert whole.about(Invocation(stream="b")) == "First\n  Run `python -m relay replay --stream b`.\nlast"
    assert copy.deepcopy(whole).parts == whole.parts
    assert render("python -m relay replay", Invocation(stream="b")) == "python -m relay replay"


def test_an_error_is_the_plain_text_of_its_sentence() -> None:
    error = UsageError("run ", Remedy("replay"))

    assert str(error) == "run python -m relay replay"
    assert error.sentence.render(Invocation(source="sql")) == "run python -m relay replay --source sql"


@settings(max_examples=300, deadline=None)
@given(before=TEXTS, key=TEXTS, identifier=TEXTS, stream=st.none() | st.sampled_from(["b", "b c"]))
def test_an_order_is_read_from_the_end_of_a_log_line(
    before: str, key: str, identifier: str, stream: str | None
) -> None:
    order = set_aside(key, identifier).about(Invocation(stream=stream))

    assert set_aside_at_end(f"{before} To set it aside: {order}") == order


@pytest.mark.parametrize(
    "line",
    [
        "",
        "python -m relay quarantine add k",
        "python -m relay quarantine add 'k",
        "python -m relay quarantine add k e, and it goes on",
        "python -m relay quarantine add k e --yes",
        "python -m relay quarantine add --force k e",
        "python -m relay quarantine add --env-file x k e",
        "python -m relay quarantine add k 'e';rm",
        "python -m relay quarantine add percent:%ff e",
        "python -m relay quarantine discard --all",
        "all the same: `python -m relay quarantine add KEY ID`.",
        "Set it aside with `python -m relay quarantine add KEY ID`, and its key goes on without it.",
    ],
)
def test_what_only_looks_like_an_order_is_none(line: str) -> None:
    assert set_aside_at_end(line) is None
