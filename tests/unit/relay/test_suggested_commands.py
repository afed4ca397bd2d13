"""The commands in texts such as the help: each of them parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache

import pytest

import outbox_relay.changefeed.program
from outbox_relay.operator.cli.main import PROGRAM
from tests.support.pages import PRODUCT
from tests.support.texts import INSERTED, texts

# A sentence ends behind some of them, a remark in parentheses begins, or their output goes to a file.
COMMAND = re.compile(r"python -m (relay|outbox_relay\.changefeed) ([^`\n|]+?)(?=[.:,;)]+(?:\s|$)| +[(>]|[`\n|]|$)")

# A name for any command.
ANY_COMMAND = "COMMAND"


@cache
def suggested() -> list[tuple[str, str, list[str]]]:
    """Each command in the texts: its place, its program, and its words."""
    # Every process of pytest-xdist collects these tests, and it reads only the modules that can have a command.
    return [
        (place, found[1], shlex.split(found[2]))
        for place, text in texts(*PRODUCT, "outbox_relay/changefeed", naming="python")
        for found in COMMAND.finditer(text.replace(INSERTED, "x"))
        if ANY_COMMAND not in found[2]
    ]


PROGRAMS: dict[str, Callable[[list[str]], object]] = {
    "relay": PROGRAM.parse,
    "outbox_relay.changefeed": outbox_relay.changefeed.program.PROGRAM.parse,
}


@pytest.mark.parametrize(("program", "words"), [pytest.param(*each, id=place) for place, *each in suggested()])
def test_a_command_of_a_text_parses(program: str, words: list[str]) -> None:
    try:
        PROGRAMS[program](words)
    except SystemExit:
        pytest.fail(f"python -m {program} {shlex.join(words)}")


def test_the_commands_of_the_texts_are_found() -> None:
    assert len(suggested()) > 40
