"""The message of `make setup` on a machine that cannot compile python-qpid-proton."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from packages.emulators.tests.package.projects import WATCHDOG_S

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "compiler.py"
REQUIREMENT = "python-qpid-proton==0.40.0"


def run(find_links: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script without the package index; with the wheels of a directory."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(find_links), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        [sys.executable, str(SCRIPT), REQUIREMENT],
        env={**os.environ, **offline, **environment},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )


def test_without_a_compiler_one_line_says_what_to_install(tmp_path: Path) -> None:
    ended = run(tmp_path, CC="no-such-compiler -pthread")

    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "the C compiler (no-such-compiler) is missing" in line
    assert "apt-get install gcc python3-dev" in line


def test_a_wheel_makes_the_compiler_unnecessary(tmp_path: Path) -> None:
    (tmp_path / "python_qpid_proton-0.40.0-py3-none-any.whl").write_bytes(_wheel())

    assert run(tmp_path, CC="no-such-compiler").returncode == 0


def test_with_a_compiler_and_headers_nothing_is_said(tmp_path: Path) -> None:
    ended = run(tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")


def _wheel() -> bytes:
    """A wheel without modules."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        name = "python_qpid_proton-0.40.0.dist-info"
        archive.writestr(f"{name}/METADATA", "Metadata-Version: 2.1\nName: python-qpid-proton\nVersion: 0.40.0\n")
        archive.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}/RECORD", "")
    return content.getvalue()
