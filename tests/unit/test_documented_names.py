"""The pages name what exists: settings and defaults, commands, options, log lines; a figure has one page."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import docs.site.__main__
import local.program
import outbox_relay.changefeed.program
import outbox_relay.emulators.program
import outbox_relay.inbox.commands
import outbox_relay.operator.cli.main
import verification.bench.__main__
import verification.journal.__main__
from local.chaos.schedule import ALL_KINDS
from outbox_relay.emulators.cosmos import edges as cosmos
from outbox_relay.emulators.functions import edges as functions
from outbox_relay.emulators.servicebus import edges as servicebus
from outbox_relay.operator.cli.terminal import EXIT_CODES
from relay.backends.sql.rows import OPTIONAL_COLUMNS, REQUIRED_COLUMNS
from relay.config.settings import Settings
from tests.support.pages import PAGES, PRODUCT, ROOT, SHELL, blocks
from tests.support.programs import CommandLine, WithArgparse, WithCyclopts
from tests.unit.test_documentation import prose

REQUIRED = {"COSMOS": "AccountEndpoint=https://x;AccountKey=eA==;", "SERVICEBUS__fullyQualifiedNamespace": "x.y"}
OF_AN_SQL_OUTBOX = {"SQL": "postgresql://user@host/database"}

# Names that look like settings of the relay and are none.
OTHER_NAMES = {
    "COSMOS_HTTP_CONNECTION_WITHOUT_TLS_ALLOWED": "the Java SDK reads it",
    "LOCAL_SERVICEBUS_ADMIN": "the stack's env file has it for curl",
    "RELAY_IDENTITY": "an output of sql.bicep",
    "RELAY_SENDER": "an example of a misspelt name",
    "SERVICEBUS_ADMIN": "the administration port of an emulator",
    "SERVICEBUS_SUBSCRIPTION": "the sample's consumer reads it",
    "SQL_ASCII": "an encoding of PostgreSQL",
}
OTHER_OPTIONS = {
    "--directory": "the sample's consumer",
    "--emulators-seed": "the pytest plugin of outbox-relay-emulators",
    "--publish": "docker",
    "--spec": "pipx",
    "--ttl": "az",
}


def page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def settings_of(path: str) -> dict[str, str]:
    """The names in the first column of a page's tables, with the second, which is a setting's default or empty."""
    rows = re.findall(r"^\| (`[^|]+`) \| ?`?([^|`]*)", page(path), re.MULTILINE)
    return {name: default.strip() for names, default in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_documented_defaults_are_those_of_the_code() -> None:
    bare = REQUIRED | OF_AN_SQL_OUTBOX
    by_default = Settings.from_environment(bare)

    for name, default in settings_of("docs/settings.md").items():
        if default:
            assert Settings.from_environment(bare | {name: default}) == by_default, name


def test_every_setting_on_a_page_is_in_a_table_of_settings() -> None:
    tables = ("docs/settings.md", "docs/console.md", "tests/README.md")
    listed = {name for table in tables for name in settings_of(table)}
    named = {
        name
        for each in PAGES
        for name in re.findall(
            r"\b(?:RELAY|COSMOS|SERVICEBUS|SQL|CONSOLE|LOCAL|OUTBOX_RELAY)_[A-Z][A-Z_]*", each.read_text("utf-8")
        )
    }

    assert named - listed == set(OTHER_NAMES)


def test_every_page_owns_its_claims_and_names_what_holds_it_to_the_code() -> None:
    _, _, table = page("docs/site/README.md").partition("## Which page owns what\n")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    owners = [ROOT / name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    tests = [ROOT / name for row in rows for name in re.findall(r"`([^`]+)`", row[2])]

    assert len(owners) == len(set(owners))
    assert [each for each in PAGES if not {each, each.parent} & set(owners)] == []
    assert [str(path) for path in owners + tests if not path.exists()] == []


def test_every_path_on_a_page_exists() -> None:
    folders = "changefeed|docs|infra|local|packages|relay|samples|tests|verification"
    for path in PAGES:
        for named in re.findall(rf"`((?:{folders})/[\w./-]*)`", prose(path.read_text(encoding="utf-8"))):
            assert (ROOT / named).exists() or (path.parent / named).exists(), f"{path.name}: {named}"


def test_every_module_and_every_test_that_a_page_names_exists() -> None:
    tests = {path.name for path in ROOT.rglob("test_*.py") if "node_modules" not in path.parts}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"python -m ([a-z][\w.]*\w)", text):
            assert importlib.util.find_spec(name) is not None, f"{path.name}: python -m {name}"
        for name in re.findall(r"`(test_\w+\.py)`", prose(text)):
            assert name in tests, f"{path.name}: {name}"


def test_the_page_of_edges_has_every_admin_path_of_the_emulators() -> None:
    source = ROOT / "packages/emulators/src/outbox_relay/emulators"
    written = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r"/admin/([a-z]+)\b", path.read_text(encoding="utf-8"))
    }

    assert len(written) > 8
    assert set(re.findall(r"/admin/([a-z]+)\b", page("packages/emulators/docs/edges.md"))) == written


IN_NO_ROW = ("__init__.py",)


def test_the_architecture_page_has_every_module_of_the_core() -> None:
    [layout] = re.findall(r"^## Layout\n(.*)", page("docs/architecture.md"), re.MULTILINE | re.DOTALL)
    rows = dict(re.findall(r"^\| `(relay/[a-z]+)/` \| (.*) \|$", layout, re.MULTILINE))

    for folder in ("relay/core", "relay/backends"):
        named = set(re.findall(r"`(\w+\.py)`", rows[folder]))
        assert named == {path.name for path in (ROOT / folder).glob("*.py") if path.name not in IN_NO_ROW}


@pytest.fixture(scope="module")
def programs() -> dict[str, CommandLine]:
    """The command line of each `python -m …` of the pages."""
    parsers = {
        "bench": verification.bench.__main__.parser(),
        "journal": verification.journal.__main__.parser(),
        "docs.site": docs.site.__main__.parser(),
    }
    return {
        "relay": WithCyclopts(outbox_relay.operator.cli.main.PROGRAM),
        "outbox_relay.changefeed": WithCyclopts(outbox_relay.changefeed.program.PROGRAM),
        "outbox_relay.inbox": WithCyclopts(outbox_relay.inbox.commands.PROGRAM),
        "local": WithCyclopts(local.program.PROGRAM),
        "outbox_relay.emulators": WithCyclopts(outbox_relay.emulators.program.PROGRAM),
        **{name: WithArgparse(each) for name, each in parsers.items()},
    }


def commands(text: str, programs: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Each of the programs with its arguments, without what the shell does with its output."""
    joined = re.sub(r"\\\n|…", " ", re.sub(r"\$\([^)]*\)", "x", text))
    arguments = r"""((?:"[^"]*"|'[^']*'|[^|<>#&;)\n"'])*)"""
    for name, given in re.findall(rf"python -m ({'|'.join(map(re.escape, programs))})\b(?!\.){arguments}", joined):
        yield name, shlex.split(given.replace("\\", "/"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_a_block_parses(path: Path, programs: dict[str, CommandLine]) -> None:
    for block in blocks(path):
        for name, words in commands(block.text, programs) if block.language in (SHELL, "console") else []:
            try:
                programs[name].parse(words)
            except SystemExit:
                pytest.fail(f"{block.place}: python -m {name} {shlex.join(words)}")


def test_every_command_and_option_in_a_sentence_exists(programs: dict[str, CommandLine]) -> None:
    known = set(OTHER_OPTIONS).union(*(each.options() for each in programs.values()))
    for path in PAGES:
        for code in re.findall(r"`([^`]+)`", prose(path.read_text(encoding="utf-8"))):
            text = " ".join(code.split())
            if option := re.match(r"--[a-z][a-z-]*", text):
                assert option[0] in known, f"{path.name}: {text}"
            for name, words in commands(text, programs):
                subcommand = programs[name].within(words)
                named = {word.partition("=")[0] for word in words if word.startswith("--")}
                assert named <= subcommand.options(), f"{path.name}: {text}"
                if words and not words[0].startswith("-") and name != "bench":
                    assert subcommand is not programs[name], f"{path.name}: {text}"


def test_the_reference_of_commands_has_each_of_them(programs: dict[str, CommandLine]) -> None:
    text = (ROOT / "docs/site/reference/commands.rst").read_text(encoding="utf-8")
    tools = ("relay", "local", *(f"outbox_relay.{name}" for name in ("changefeed", "inbox", "emulators")))

    shown = re.findall(r"^\.\. program-output:: python -m (.+) --help$", text, re.MULTILINE)

    assert shown == [" ".join((name, *words)) for name in tools for words in programs[name].leaves()]


def test_every_option_and_exit_code_of_the_relay_is_documented(
    programs: dict[str, CommandLine],
) -> None:
    pages = "".join(page(f"docs/{name}.md") for name in ("operators", "sql", "console", "dead-letters"))
    named = {option.removeprefix("--") for option in programs["relay"].options()} - {"-h"}
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", page("docs/operators.md"), re.MULTILINE)

    assert {name for name in named if not re.search(rf"--{name}\b", pages)} == set()
    assert dict(rows) == dict(re.findall(r"^  (\d+) +(.+)$", EXIT_CODES, re.MULTILINE))


def test_the_sql_page_has_every_column_and_says_which_are_required() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", page("docs/sql.md"), re.MULTILINE)
    required = {name: needed for names, needed in rows for name in re.findall(r"`(\w+)`", names)}

    assert [name for name, needed in required.items() if needed == "yes"] == list(REQUIRED_COLUMNS)
    assert {name for name, needed in required.items() if needed != "yes"} == set(OPTIONAL_COLUMNS)
    # Without it in the data either, an event is quarantined.
    assert required["action"] == "if `data` has none"


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", page("Makefile"), re.MULTILINE))
    named = {
        target
        for path in PAGES
        for target in re.findall(r"(?:`|^(?:\w+=\S+ )*)make ([a-z][a-z-]*)", path.read_text("utf-8"), re.MULTILINE)
    }

    assert named
    assert named - targets == set()


def test_the_log_lines_of_the_telemetry_page_are_those_of_the_relay() -> None:
    files = [file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py") if file.name != "__main__.py"]
    sources = "".join(file.read_text(encoding="utf-8") for file in files)
    functions = set(re.findall(r'function_name\("(\w+)"', sources))
    written = set(re.findall(r'"(relay_[a-z]+(?:_[a-z]+)*)\b', sources)) - functions
    documented = set(re.findall(r"`(relay_[a-z_]+)`", page("docs/telemetry.md"))) - functions

    assert {"relay_age", "relay_sql"} < functions
    assert documented == written


def test_the_page_of_edges_has_every_edge_of_the_emulators() -> None:
    tables = re.findall(
        r"^\| edge \| .*\n\|[-|]+\n((?:\|.*\n)+)", page("packages/emulators/docs/edges.md"), re.MULTILINE
    )
    first = [row.split("|")[1] for table in tables for row in table.splitlines()]

    assert {name for cell in first for name in re.findall(r"`([\w-]+)`", cell)} == {
        edge.value for emulator in (cosmos, functions, servicebus) for edge in emulator.Edge
    }


def test_every_kind_of_fault_is_listed() -> None:
    tables = re.findall(
        r"^\| faults \| kinds \|\n\|[-|]+\n((?:\|.*\n)+)", page("local/chaos/README.md"), re.MULTILINE
    )
    named = set(re.findall(r"`([a-z-]+)`", "".join(tables)))

    assert len(tables) == 2
    assert named == set(ALL_KINDS)


def test_a_figure_of_the_benchmarks_is_on_one_page() -> None:
    def figures(text: str) -> set[tuple[str, str]]:
        found = re.findall(r"(?<![\d.,])(\d[\d,]*(?:\.\d+)?) ?(\u00d7|ms|µs|rows/s|events/s|%)(?!\w)", text)
        # Round numbers are settings.
        return {(number, unit) for number, unit in found if len(re.sub(r"[.,]|^0\.0*|0+$", "", number)) >= 3}

    measured = figures(page("docs/benchmarks.md"))
    # The README's headlines are written by the same command.
    others = {
        path: re.sub(r"<!-- headlines -->.*?<!-- end -->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for path in PAGES
        if path.name != "benchmarks.md"
    }

    assert len(measured) > 20
    assert {path.name: both for path, text in others.items() if (both := figures(text) & measured)} == {}
