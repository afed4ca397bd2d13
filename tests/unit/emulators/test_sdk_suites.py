"""The command that runs Microsoft's own tests, if they are not available."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from packages.emulators.tests.sdk_suites import __main__ as suites
from packages.emulators.tests.sdk_suites.known import FAILING, NOT_RUN


def test_without_the_source_distribution_it_is_said_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suites, "FOLDER", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(sys, "argv", ["sdk_suites", "cosmos"])

    with pytest.raises(SystemExit) as ended:
        suites.main()

    assert ended.value.code == 0
    assert "cosmos was NOT run: the source distribution of azure-cosmos" in capsys.readouterr().err


def test_the_tests_that_are_there_are_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "FOLDER", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    version = importlib.metadata.version("azure-cosmos")
    (tmp_path / f"azure_cosmos-{version}").mkdir()

    assert suites.tests_of("cosmos") == tmp_path / f"azure_cosmos-{version}" / "tests"


def test_every_suite_has_its_list_and_each_entry_a_reason() -> None:
    for listed in (FAILING, NOT_RUN):
        assert listed.keys() == suites.MARKS.keys()
        assert all(reason for patterns in listed.values() for reason in patterns.values())
