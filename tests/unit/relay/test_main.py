"""`python -m relay`."""

from __future__ import annotations

import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outbox_relay.command_line import python
from outbox_relay.operator.cli.main import main
from relay import __version__
from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_line_is_run_with_its_arguments_and_ends_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = []
    for arguments in (["quarantine", "--help"], ["quarantine", "nonsense"]):
        monkeypatch.setattr(sys, "argv", ["relay", *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("relay", run_name="__main__")
        codes.append(ended.value.code)

    out, err = capsys.readouterr()
    assert codes == [0, 2]
    assert out.startswith(f"Usage: {python()} -m relay quarantine ")
    assert "nonsense" in err


def test_importing_it_runs_nothing() -> None:
    assert "run" in runpy.run_module("relay.__main__", run_name="relay.__main__")


@pytest.mark.parametrize("command", [[], ["check"], ["quarantine", "list"]])
def test_the_version_is_that_of_the_app(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"outbox-relay {__version__}\n"


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ([], "outbox_relay"),
        (["changefeed/__init__.py"], "outbox_relay.operator"),
        (["operator/cli/main.py"], "outbox_relay.command_line"),
    ],
)
def test_outside_a_clone_the_distribution_of_the_commands_is_named(
    files: list[str], missing: str, tmp_path: Path
) -> None:
    (tmp_path / "relay").mkdir()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "relay" / name, tmp_path / "relay")
    for name in files:
        file = tmp_path / "outbox_relay" / name
        file.parent.mkdir(parents=True)
        file.write_text("from outbox_relay.command_line import run\n", encoding="utf-8")

    # -S: without the packages of this Python.
    run = subprocess.run(
        [sys.executable, "-S", "-m", "relay", "--help"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        f"relay: the package {missing!r} is missing from {sys.executable}. "
        f"Run {shlex.quote(sys.executable)} -m pip install outbox-relay-operator.\n"
    )


@pytest.mark.parametrize(
    ("module", "remedy"),
    [("relay", f"{shlex.quote(str(ROOT / 'packages' / 'operator'))}"), ("local", "make setup")],
)
def test_a_python_without_the_packages_says_so_in_one_line(module: str, remedy: str) -> None:
    # -S: without the packages of this Python.
    command = [sys.executable, "-S", "-m", module, "--help"]
    run = subprocess.run(
        command, cwd=ROOT, env={}, capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )

    assert (run.returncode, run.stdout) == (2, "")
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"{module}: the package ")
    assert f"is missing from {sys.executable}" in line
    assert remedy in line
