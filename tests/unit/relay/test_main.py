"""`python -m relay`."""

from __future__ import annotations

import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from outbox_relay.operator.cli.main import main
from outbox_relay.operator.cli.shell import python
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
    assert out.startswith(f"usage: {python()} -m relay quarantine ")
    assert "nonsense" in err


def test_importing_it_runs_nothing() -> None:
    assert "main" in runpy.run_module("relay.__main__", run_name="relay.__main__")


def test_the_version_is_that_of_the_app(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"outbox-relay {__version__}\n"


@pytest.mark.parametrize(
    ("module", "remedy"),
    [("relay", f"-m pip install -r {shlex.quote(str(ROOT / 'requirements.txt'))}"), ("local", "make setup")],
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
