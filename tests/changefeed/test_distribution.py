"""The wheel of sql-changefeed, usable without the repository, and the examples of its README."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import psycopg
import pytest

import changefeed
from tests.support.pages import blocks
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

_PACKAGE = Path(changefeed.__file__).parent
_README = _PACKAGE / "README.md"


def test_the_wheel_has_every_module_and_migration(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=_PACKAGE, check=True, capture_output=True, timeout=WATCHDOG_S)
    (wheel,) = tmp_path.glob("sql_changefeed-*.whl")
    with zipfile.ZipFile(wheel) as content:
        shipped = {name for name in content.namelist() if name.startswith("changefeed/")}
        content.extractall(tmp_path / "installed")

    expected = [path for pattern in ("*.py", "*.sql", "py.typed") for path in _PACKAGE.rglob(pattern)]
    assert shipped == {f"changefeed/{path.relative_to(_PACKAGE).as_posix()}" for path in expected}
    # Elsewhere, and without the repository on the path.
    show = "from changefeed.install import migrations; print(len(migrations('postgresql')))"
    alone = subprocess.run(
        [sys.executable, "-c", show],
        cwd=tmp_path / "installed",
        env={"PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    assert int(alone.stdout) == len(list((_PACKAGE / "postgresql" / "migrations").glob("*.sql")))


# The examples of changefeed's README, run in their order in one database


_WORDS = 900


def test_the_examples_run_in_the_order_of_the_page(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHANGEFEED_URL", postgres_database)
    names: dict[str, Any] = {}
    printed: list[Any] = []
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        for block in blocks(_README):
            if block.language == "sql":
                cursor = owner.execute(block.text)
                printed += cursor.fetchall() if cursor.description else []
            elif block.language == "python":
                exec(block.text, names)
            elif "test_the_examples_run" in block.comment:
                printed += [_run(line) for line in block.text.splitlines()]
    names["session"].close()

    output = capsys.readouterr().out
    assert [line.split("'version': ")[1][0] for line in output.splitlines() if "order-1" in line] == ["1", "2"]
    assert output.splitlines()[-1] == "False"
    assert [change.change_id for change in names["page"].changes] == [names["change_id"]]
    assert (names["page"].cursor, "parcel-1", names["change_id"]) in printed
    status = next(line for line in printed if isinstance(line, str) and "sweep group 0" in line)
    assert "shard 0: 0 in the outbox" in status


def _run(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "python"
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, timeout=50
    ).stdout


def test_the_page_is_short() -> None:
    prose = re.sub(r"```.*?```", "", _README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(prose.split()) < _WORDS


def test_the_names_on_the_page_exist() -> None:
    named = set(re.findall(r"changefeed\.([a-zA-Z_]+)\(", _README.read_text(encoding="utf-8")))

    assert {name for name in named if not hasattr(changefeed, name)} == set()
