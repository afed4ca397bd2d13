"""`python -m relay`."""

from __future__ import annotations

import runpy
import sys

import pytest


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
    assert out.startswith("usage: python -m relay quarantine ")
    assert "nonsense" in err


def test_importing_it_runs_nothing() -> None:
    assert "main" in runpy.run_module("relay.__main__", run_name="relay.__main__")
