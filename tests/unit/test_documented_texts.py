"""The output of commands, logs and the host on the operators' pages is the output that the code prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pytest

from relay.core import errors
from tests.support.pages import PRODUCT, ROOT, blocks
from tests.support.texts import INSERTED, texts
from tests.unit.test_documented_names import page

pytestmark = pytest.mark.slow

RUNBOOK = "docs/runbook.md"

# A text with fewer letters would fit anywhere.
_LETTERS = 6

# Where a text of the code inserts something, or is formatted.
_FIELD = re.compile(rf"{INSERTED}|{{[^{{}}]*}}|%[sdgr]|%\.\df")

_VALUES = re.compile(
    r"'[^']*'"  # quoted names
    r"|\b[0-9a-f]{8,}\b|\b\S*\d\S*\b"  # ids, times, numbers
    r"|\S*[-/=:]\S*"  # reasons, types of partition keys, options
    r"|^  (?:\w+ = |subject: ).*?(?= \(\w+\)$|$)"  # what an event gives its message: properties, the subject
)


@dataclass(frozen=True)
class Printed:
    """The printed texts: patterns of lines, whose groups are what they say themselves, and single words."""

    lines: tuple[re.Pattern[str], ...]
    words: frozenset[str]

    def unsaid(self, line: str) -> list[str]:
        """The words of a line that are no values, and that nothing prints."""
        marks = [False] * len(line)
        for pattern in self.lines:
            for match in pattern.finditer(line):
                for group in range(1, pattern.groups + 1):
                    begin, end = match.span(group)
                    marks[begin:end] = [True] * (end - begin)
        for match in _VALUES.finditer(line):
            marks[match.start() : match.end()] = [True] * (match.end() - match.start())
        left = "".join(" " if marked else each for each, marked in zip(line, marks, strict=True))
        return [word for word in re.findall(r"[A-Za-z]{2,}", left) if word not in self.words]


@cache
def printed() -> Printed:
    """Return the texts that the relay prints."""
    patterns: list[re.Pattern[str]] = []
    words: set[str] = set()
    for line in {line for _, text in texts(*PRODUCT) for line in text.split("\n")}:
        said = _FIELD.split(line)
        if sum(map(str.isalpha, "".join(said))) >= _LETTERS:
            patterns.append(re.compile(".+?".join(f"({re.escape(each)})" for each in said)))
        else:
            words.update(map(str.strip, said))
    return Printed(tuple(patterns), frozenset(words))


def test_the_output_of_each_command_is_what_it_prints() -> None:
    shown = [
        (block.place, line)
        for block in blocks(ROOT / "docs/operators.md")
        if block.language == "console"
        for line in block.text.splitlines()
        # A record is shown as JSON.
        if not line.startswith("$") and not re.match(r' *["{}]', line)
    ]

    assert len(shown) >= 25
    assert [(*each, words) for each in shown if (words := printed().unsaid(each[1]))] == []


# What the host and the services print is in the emulators, which have it from them, and in the queries; except for
# these, each with where it is from.
OF_OTHERS = {
    "Forbidden": "the reason phrase of HTTP status 403",
    "ModuleNotFoundError": "Python",
    "Running": "the state of a function app, as `az functionapp show` prints it",
    "TaskCanceledException": ".NET",
}
ERRORS = {name for name, each in vars(errors).items() if isinstance(each, type)} | {"CancelledError"}


def quoted() -> list[str]:
    """Return the quotations of the runbook.

    They are in quotation marks, code that is no command, or blocks without a language.

    Each line alone, and what is before and after an ellipsis.
    """
    prose = re.sub(r"^ *```.*?^ *```", "", page(RUNBOOK), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r'"([A-Za-z(][^"]*)"', re.sub(r"`[^`]*`", "", prose))
    code = [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose)]
    found += [each for each in code if re.fullmatch(r"(?:warning|error) .*|[A-Z][a-z]\w*(?: .*)?", each)]
    found += [line for block in blocks(ROOT / RUNBOOK) if block.language == "" for line in block.text.splitlines()]
    return [part.strip() for each in found if each not in ERRORS for part in each.split("…") if part.strip()]


@cache
def said_anywhere() -> list[str]:
    """The texts of the relay, of `inbox`, of the emulators and of the infrastructure, each on one line."""
    code = [
        text
        for _, text in texts(
            *PRODUCT, "packages/emulators/src/outbox_relay/emulators", "packages/inbox/src/outbox_relay/inbox"
        )
    ]
    others = [path for path in (ROOT / "infra").rglob("*") if path.suffix in (".kql", ".bicep")]
    return [" ".join(text.split()) for text in [*code, *(path.read_text("utf-8") for path in others)]]


def is_said(fragment: str) -> bool:
    """Return True if a text has the fragment, whatever its numbers."""
    pieces = [each.strip() for each in re.split(r"\d+", fragment) if each.strip()]
    return any(all(piece in text for piece in pieces) for text in said_anywhere())


def test_what_the_runbook_quotes_is_printed_by_the_relay_the_host_or_a_service() -> None:
    found = quoted()

    assert len(found) > 20
    checked = [each for each in found if each.startswith(("warning ", "error "))]
    assert [each for each in checked if printed().unsaid(each)] == []
    assert {each for each in found if each not in checked and not is_said(each)} == set(OF_OTHERS)


def test_the_sentences_that_the_operators_page_quotes_are_printed() -> None:
    prose = re.sub(r"^ *```.*?^ *```", "", page("docs/operators.md"), flags=re.MULTILINE | re.DOTALL)
    code = [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose)]
    sentences = [each for each in code if re.fullmatch(r"[a-z-]+(?: [\w']+){3,}", each)]

    assert sentences
    assert [each for each in sentences if not is_said(each)] == []


def test_the_runbook_has_each_sign_of_work_of_the_query() -> None:
    [table] = re.findall(r"^\| `Sign` \| \|\n\|[-|]+\n((?:\|.*\n)+)", page(RUNBOOK), re.MULTILINE)
    rows = [line.strip("| ").split(" | ")[0] for line in table.splitlines()]

    assert rows == re.findall(r'Sign = "([^"]+)"', page("infra/queries/silent.kql"))


def test_a_text_that_is_printed_no_more_is_noticed() -> None:
    line = (
        "warning  COSMOS_CONTAINER 'data' has time to live off: the ttl of events is ignored, so they are never {}"
    )
    assert printed().unsaid(line.format("deleted")) == []
    assert "zapped" in printed().unsaid(line.format("zapped"))
    assert not is_said("setting(s) to put right")
    assert is_said("setting(s) must be corrected")
