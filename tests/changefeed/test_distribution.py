"""The wheel of sql-changefeed: the package with its migrations, usable without the repository."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import changefeed

_PACKAGE = Path(changefeed.__file__).parent


def test_the_wheel_has_every_module_and_migration(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=_PACKAGE, check=True, capture_output=True, timeout=50)
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
        timeout=50,
    )
    assert int(alone.stdout) == len(list((_PACKAGE / "postgresql" / "migrations").glob("*.sql")))
