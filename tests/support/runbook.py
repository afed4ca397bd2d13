"""The runbook's tables: the commands of each row, and an operator who pastes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.operators import Run, relay_command
from tests.unit.test_documented_names import commands, page

RUNBOOK = "docs/runbook.md"
ENV_FILE = "relay.env"


def rows() -> Iterator[tuple[str, str]]:
    """Each row of the page's tables: what its first cell names, one by one, and the other cells."""
    for line in page(RUNBOOK).splitlines():
        if line.startswith("| "):
            first, *others = line.strip("| ").split(" | ")
            for name in re.findall(r"[`\[]([^`\]]+)[`\]]", first) or [first.strip('"')]:
                yield name, " | ".join(others)


@cache
def with_commands() -> dict[str, list[list[str]]]:
    """The words of the commands of the relay in each row that has any."""
    found: dict[str, list[list[str]]] = {}
    for name, cells in rows():
        for code in re.findall(r"`([^`]+)`", cells):
            found.setdefault(name, []).extend(words for _, words in commands(code, ["relay"]) if words)
    return {name: words for name, words in found.items() if words}


@dataclass(frozen=True)
class Operator:
    """Somebody with the runbook and an env file, who answers every question with yes."""

    folder: Path

    def set(self, environment: Mapping[str, str]) -> None:
        """Write the env file."""
        lines = [f"{name}='{value}'\n" for name, value in environment.items()]
        (self.folder / ENV_FILE).write_text("".join(lines), encoding="utf-8")

    async def follow(self, row: str, **values: str) -> Run:
        """Run the only command of a row; `values` replace the words in capitals, such as ID."""
        [words] = with_commands()[row]
        return await self.paste(words, **values)

    async def paste(self, words: list[str], **values: str) -> Run:
        """Run a command of the page."""
        file = str(self.folder / ENV_FILE)
        given = [file if word == ENV_FILE else values.get(word, word) for word in words]
        assert file in given, f"without {ENV_FILE} a command finds no settings: {words}"
        return await relay_command({}, *given, typed="yes\n")
