"""Windows, as far as it can be tested elsewhere: what the pages say of it, and the branches of the code for it."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml  # type: ignore[import-untyped]

from local import make_venv
from local.stack.environment import write_env_file
from outbox_relay import command_line
from tests.support.pages import PAGES, ROOT

PAGE = ROOT / "docs" / "local-stack.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("\n## Windows\n")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| (the .+?) \| (on .+) \|$", SECTION, re.MULTILINE))


def test_one_page_alone_says_what_runs_on_windows() -> None:
    """Look for Windows as a platform: other pages link to the section, or speak of WSL."""
    on_windows, elsewhere = ROWS
    assert ("`outbox`" in on_windows, "`inbox`" in on_windows, "`python -m relay`" in on_windows) == (True,) * 3
    assert "emulators" in elsewhere
    assert "WSL" in ROWS[elsewhere]
    for path in PAGES:
        for line in path.read_text(encoding="utf-8").splitlines():
            if path != PAGE and re.search(r"\b(on Windows|PowerShell)\b", line):
                known = r"local-stack\.md#windows|\bWSL\b|Ctrl\+Break|in Kubernetes or on Windows"
                assert re.search(known, line), (path, line)


def test_ci_tests_on_windows_what_the_page_says() -> None:
    """The tests of the relay, of outbox and of inbox, and none of the stack or the emulators."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    systems = {name: job.get("strategy", {}).get("matrix", {}).get("system", []) for name, job in jobs.items()}
    [job] = [jobs[name] for name, found in systems.items() if "windows-2025" in found]
    [command] = [step["run"] for step in job["steps"] if "pytest" in step.get("run", "")]

    assert re.findall(r"tests/\S+", command) == ["tests/unit/relay", "tests/unit/outbox", "tests/unit/inbox"]
    assert "Windows Server 2025" in SECTION


def test_the_emulators_claim_the_systems_of_the_page() -> None:
    """The Functions host locks files as POSIX does, so that it cannot be imported on Windows."""
    project = ROOT / "packages" / "emulators"
    classifiers = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    systems = [each for each in classifiers if each.startswith("Operating System :: ")]

    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]
    assert "on Linux or macOS, or on Windows in WSL" in (project / "README.md").read_text(encoding="utf-8")


def test_the_powershell_line_reads_what_the_stack_writes(tmp_path: Path) -> None:
    [line] = re.findall(r"```powershell\n(.*)\n```", SECTION)
    file, pattern, setting = re.findall(r'Get-Content (\S+) .* -match "(.+?)"\) \{ (Set-Item .*?) \}', line)[0]
    values = {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:8081/;AccountKey=C2y6yDjf5/R+ob==;",
        "SQL": "postgresql://relay:local@127.0.0.1:5432/relay?options=-c%20x",
        "PLAIN": "60",
        "EMPTY": "",
        "DOLLAR": "$HOME `x` #",
    }
    write_env_file(tmp_path / "stack.env", values)

    lines = (tmp_path / "stack.env").read_text(encoding="utf-8").splitlines()
    found = [re.search(pattern, each) for each in lines]

    assert file == r".local\stack.env"
    assert setting == 'Set-Item "env:$($Matches[1])" $Matches[2]'
    assert {each[1]: each[2] for each in found if each} == values
    assert [each for each, match in zip(lines, found, strict=True) if not match] == lines[:1]


@pytest.mark.parametrize(
    ("program", "command"),
    [
        (".venv/Scripts/python.exe", ".venv/Scripts/python.exe"),
        ("my venv/Scripts/python.exe", '& "my venv/Scripts/python.exe"'),
    ],
)
def test_a_command_is_one_that_powershell_runs(
    program: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A word in quotes is a text there, unless `&` comes before it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / program))
    monkeypatch.setattr(command_line.output, "os", SimpleNamespace(name="nt"))

    assert command_line.python() == command
    assert command_line.as_typed("python -m relay check") == f"{command} -m relay check"


def test_the_set_up_finds_the_python_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "Scripts" / "python.exe"
    python.parent.mkdir()
    python.touch()
    monkeypatch.setattr(make_venv, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr(make_venv, "_run", lambda _: (0, "pip 26"))

    assert make_venv.make_environment(tmp_path) == python
