"""The pages say of each reason, error and state what `reasons` says, and their commands can be typed."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterable, Mapping

import pytest

from outbox_relay.operator.cli.main import PROGRAM
from outbox_relay.operator.reasons import (
    AT_A_GLANCE,
    ERRORS,
    QUARANTINE,
    RECOVERY,
    STATES,
    Row,
    State,
)
from outbox_relay.operator.reasons import (
    RUNBOOK as SECTIONS,
)
from relay.core import errors
from relay.core.events import Reason
from tests.unit.test_documented_names import commands, page

RUNBOOK, CONTRACT = "docs/runbook.md", "docs/message-contract.md"


def table(path: str, head: str) -> dict[str, list[str]]:
    """The other cells of each row of the table with this head, by each name in the first."""
    [rows] = re.findall(rf"^{re.escape(head)}\n\|[-|]+\n((?:\|.*\n)+)", page(path), re.MULTILINE)
    found: dict[str, list[str]] = {}
    for row in rows.splitlines():
        first, *others = row.strip("| ").split(" | ")
        for name in re.findall(r"^a parked key$|[`\[]([\w-]+)[`\]]", first) or [first]:
            found[name or "parked"] = [each.replace(" --env-file relay.env", "") for each in others]
    return found


def alerts() -> list[str]:
    """The alerts that the Bicep files deploy."""
    texts = [page(f"infra/modules/{name}.bicep") for name in ("alerts", "relay-alerts", "sql-alerts")]
    # That file's workbook has names too.
    texts.append(page("infra/consumers.bicep").partition("\nresource ")[0])
    return [name for text in texts for name in re.findall(r"^ {4}name: '([\w-]+)'$", text, re.MULTILINE)]


def code_of(texts: Iterable[str]) -> list[str]:
    return [code for text in texts for code in re.findall(r"`([^`]+)`", text)]


def test_every_reason_every_error_and_every_state_has_a_row() -> None:
    defined = {
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if each.__module__ == errors.__name__ and issubclass(each, Exception)
    }

    assert set(QUARANTINE) == set(Reason)
    assert set(ERRORS) == defined
    assert set(STATES) == set(State)


def test_the_contract_says_what_each_reason_means() -> None:
    meanings = table(CONTRACT, "| reason | meaning |")

    assert list(meanings) == list(Reason)
    assert [str(each) for each in Reason if not meanings[each][0].startswith(QUARANTINE[each].meaning)] == []


def test_the_runbook_says_what_to_do_for_each_reason() -> None:
    remedies = table(RUNBOOK, "| reason | do |")

    assert list(remedies) == list(Reason)
    assert {each: remedies[each] for each in Reason} == {each: [QUARANTINE[each].remedy] for each in Reason}


def test_the_runbook_has_a_row_for_each_error() -> None:
    rows = table(RUNBOOK, "| `Error` | meaning | passes by itself | do |")
    of_the_relay = {each.__name__: row for each, row in ERRORS.items()}

    assert set(rows) - set(of_the_relay) == {"CancelledError", "any other"}
    assert differing(rows, of_the_relay) == {}


def test_the_runbook_has_a_row_for_each_alert_and_each_state() -> None:
    rows = table(RUNBOOK, "| alert | meaning | passes by itself | do |")

    assert len(alerts()) > 10
    assert set(rows) == {*alerts(), "stopped", "a parked key at a consumer", *STATES}
    assert differing(rows, STATES) == {}


def test_the_runbook_has_the_section_that_the_console_names_for_each_state() -> None:
    titles = re.findall(r"^#+ (.+)$", page(RUNBOOK), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title).replace(" ", "-").lower() for title in titles}

    assert set(SECTIONS) == set(State)
    assert {AT_A_GLANCE, RECOVERY, *SECTIONS.values()} - anchors == set()


def differing(
    rows: Mapping[str, list[str]], wanted: Mapping[str, Row] | Mapping[State, Row]
) -> dict[str, list[str]]:
    """The rows that do not say the same; a page may add to what is to be done."""
    return {
        name: rows[name]
        for name, row in wanted.items()
        if rows[name][:2] != [row.meaning, "yes" if row.passes else "no"]
        or not rows[name][2].startswith(row.remedy)
    }


def test_every_command_of_a_row_parses() -> None:
    rows = [*QUARANTINE.values(), *ERRORS.values(), *STATES.values()]
    on_the_page = [
        cell for line in page(RUNBOOK).splitlines() if line.startswith("| ") for cell in line.split(" | ")
    ]
    texts = [*(text for row in rows for text in (row.meaning, row.remedy)), *on_the_page]
    given = [words for code in code_of(texts) for _, words in commands(code, ["relay"]) if words]

    assert len(given) > 30
    for words in given:
        try:
            PROGRAM.parse(words)
        except SystemExit:
            pytest.fail(f"python -m relay {shlex.join(words)}")
