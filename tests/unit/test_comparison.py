"""docs/comparison.md: every claim about another tool has its source."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import ROOT

PAGE = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
TOOLS = ("CAP", "MassTransit", "Wolverine", "Rebus", "NServiceBus", "Debezium", "Dapr", "the article's sample")
# A link to what the project says, or to the measurement on the same page.
SOURCE = re.compile(r"\]\((?:https?://|#measured-next-to-each-other)")


def section(heading: str) -> str:
    [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def rows(text: str) -> dict[str, list[str]]:
    """The other cells of each row of the first table, by the first without its marks."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {first.strip("*"): others for first, *others in lines[1:]}


@pytest.mark.parametrize("tool", TOOLS)
def test_every_promise_of_another_tool_has_its_source(tool: str) -> None:
    cells = rows(section("What each promises"))[tool]

    assert len(cells) == 4
    assert [cell for cell in cells if not (SOURCE.search(cell) or cell.startswith("not stated"))] == []


def test_every_tool_is_the_better_choice_for_somebody() -> None:
    picks = " ".join(cell for cells in rows(section("Which one")).values() for cell in cells)

    # The sample is the article's, to be read.
    assert [tool for tool in TOOLS[:-1] if tool not in picks] == []


def test_what_was_measured_names_its_day_and_each_version() -> None:
    measured = " ".join(section("Measured next to each other").split())

    assert "On 23 November 2026" in measured
    for tool in ("PostgreSQL", "CAP", "MassTransit", "Wolverine", "Rebus", "RabbitMQ"):
        assert re.search(rf"{tool} \d+\.\d+", measured), tool
