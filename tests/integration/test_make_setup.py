"""`make setup` on machines that lack something, and what it shows while it works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pip
import pytest

from local.make_venv import (
    CannotSetUp,
    alone,
    check_compiler,
    check_existing,
    check_python,
    main,
    pip_settings,
    read_groups,
    uv_variables,
)
from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("make") is None, reason="needs make")]

_COPIED = (
    "Makefile",
    "local/make_venv.py",
    "packages/emulators/compiler.py",
)
_ALONE = """
import sys
from pathlib import Path
from local.make_venv import alone

with alone(Path(sys.argv[1])):
    print(1)
"""
_GROUPS = """
[dependency-groups]
local = ["python-qpid-proton==0.40.0"]
sql = [{ include-group = "local" }]
test = [{ include-group = "sql" }]
lint = []
lock = ["uv"]
"""
_OWN = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "own-FOLDER"
version = "1"

[project.optional-dependencies]
telemetry = []
pydantic = []
all = []
"""
_BACKEND = """
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/own_FOLDER-1-py3-none-any.whl", "w") as wheel:
        metadata = "Metadata-Version: 2.1\\nName: own-FOLDER\\nVersion: 1\\n"
        wheel.writestr("own_FOLDER-1.dist-info/METADATA", metadata)
        wheel.writestr("own_FOLDER-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("own_FOLDER-1.dist-info/RECORD", "")
    return "own_FOLDER-1-py3-none-any.whl"
"""
_OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a space in its name, with one requirement and packages of its own that need nothing."""
    folder = tmp_path / "a clone"
    for name in _COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in (each.parent.name for each in ROOT.glob("packages/*/pyproject.toml")):
        package = folder / "packages" / name
        package.mkdir(parents=True, exist_ok=True)
        (package / "pyproject.toml").write_text(_OWN.replace("FOLDER", name), encoding="utf-8")
        (package / "backend.py").write_text(_BACKEND.replace("FOLDER", name), encoding="utf-8")
    (folder / "pyproject.toml").write_text(_GROUPS, encoding="utf-8")
    (folder / "requirements.txt").touch()
    return folder


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with the wheel of that requirement, without modules."""
    name = "python_qpid_proton-0.40.0.dist-info"
    with zipfile.ZipFile(tmp_path / "python_qpid_proton-0.40.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/METADATA", "Metadata-Version: 2.1\nName: python-qpid-proton\nVersion: 0.40.0\n")
        wheel.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}/RECORD", "")
    return tmp_path


def with_these_installers(folder: Path) -> None:
    """Make an environment in the folder that has the pip and the uv of this one: copying them takes seconds."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in ("pip", "uv"):
        (metadata,) = Path(pip.__file__).parents[1].glob(f"{name}-*.dist-info")
        for path in (metadata, metadata.parent / name):
            (packages / path.name).symlink_to(path)
    (folder / "bin/uv").symlink_to(Path(sys.executable).parent / "uv")


def _own_environment() -> dict[str, str]:
    """The environment without what a make around these tests has put there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


def make(folder: Path, *words: str, **environment: str) -> tuple[int, list[str]]:
    """Run make with this Python; returns its exit code and its lines, without make's own."""
    ended = subprocess.run(
        ["make", "-j4", *words, f"PYTHON={environment.pop('PYTHON', sys.executable)}"],
        cwd=folder,
        env={**_own_environment(), **_OFFLINE, "UV_CACHE_DIR": str(folder / ".cache"), **environment},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    lines = (ended.stdout + ended.stderr).splitlines()
    return ended.returncode, [line for line in lines if not line.startswith("make: ")]


def make_setup(folder: Path, **environment: str) -> tuple[int, list[str]]:
    return make(folder, "setup", **environment)


def test_a_wheel_is_installed_with_a_line_for_each_step(clone: Path, wheels: Path) -> None:
    with_these_installers(clone / ".venv")

    code, lines = make_setup(clone, CC="no-such-compiler", PIP_FIND_LINKS=str(wheels))

    assert code == 0, lines
    steps = [line.split()[2] for line in lines if line.startswith("  ")]
    assert steps == ["Resolved", "Prepared", "Installed"]
    assert lines[0].startswith("Setting up .venv with Python 3.")
    assert lines[-1].startswith(".venv is ready, after ")
    assert make_setup(clone, PYTHON="/not/used") == (0, [])
    stamps = {path.name for path in (clone / ".venv").glob(".installed-*")}
    assert stamps == {".installed-local", ".installed-sql", ".installed-test"}


@pytest.mark.parametrize(
    ("words", "installed"),
    [
        (("up",), "local"),
        (("up", "SOURCE=sql"), "sql"),
        (("demo", "DEMO=--kill-host"), "local"),
        (("demo", "SOURCE=sql"), "sql"),
        (("test",), "test"),
        (("setup",), "test"),
        (("bench",), "test"),
        (("infra-check",), "test-all"),
        (("lint",), "lint"),
        (("types",), "types"),
        (("spec",), "spec"),
        (("mutants",), "mutants"),
        (("lock",), "lock"),
        (("docs",), "docs"),
    ],
    ids=" ".join,
)
def test_a_command_sets_up_the_packages_that_it_needs(clone: Path, words: tuple[str, ...], installed: str) -> None:
    code, lines = make(clone, "--dry-run", *words)

    assert code == 0, lines
    assert [line.split()[-1] for line in lines if "make_venv.py" in line] == [installed]


def test_a_python_in_a_folder_with_a_space_is_one_word(clone: Path) -> None:
    _, lines = make(clone, "--dry-run", ".venv/.installed-lint", PYTHON="/a folder/python3")

    assert lines[-1] == '"/a folder/python3" local/make_venv.py lint'


def test_the_environment_grows_and_nothing_is_installed_twice(clone: Path, wheels: Path) -> None:
    with_these_installers(clone / ".venv")
    assert make(clone, ".venv/.installed-sql", PIP_FIND_LINKS=str(wheels))[0] == 0

    assert "make_venv.py" not in "".join(make(clone, "--dry-run", "up")[1])
    code, lines = make_setup(clone, PIP_FIND_LINKS=str(wheels))

    assert code == 0, lines
    assert "make_venv.py" not in "".join(make(clone, "--dry-run", "test")[1])


def test_distributions_with_former_names_are_removed(clone: Path, wheels: Path) -> None:
    with_these_installers(clone / ".venv")
    [site] = (clone / ".venv").glob("lib/python*/site-packages")
    former = site / "outbox_emulators-0.1.0.dist-info"
    former.mkdir()
    (former / "METADATA").write_text("Metadata-Version: 2.1\nName: outbox-emulators\nVersion: 0.1.0\n")
    (former / "RECORD").write_text("outbox_emulators-0.1.0.dist-info/METADATA,,\n")

    assert make_setup(clone, PIP_FIND_LINKS=str(wheels))[0] == 0

    assert not (former / "METADATA").exists()


def test_a_tool_alone_needs_no_compiler_and_no_package_of_the_stack(clone: Path) -> None:
    with_these_installers(clone / ".venv")

    code, lines = make(clone, ".venv/.installed-lint", CC="no-such-compiler")

    assert code == 0, lines
    assert not list((clone / ".venv").glob("lib/python*/site-packages/own_*"))


def test_a_package_that_cannot_be_had_is_named_at_the_end(clone: Path) -> None:
    with_these_installers(clone / ".venv")
    file = clone / "pyproject.toml"
    file.write_text(_GROUPS.replace("lint = []", 'lint = ["no-such-linter==1"]'), encoding="utf-8")

    code, lines = make(clone, ".venv/.installed-lint")

    assert code != 0
    assert "no-such-linter" in "".join(lines)
    assert "uv could not install the group lint: its last lines are above." in lines


def test_uv_gets_packages_from_where_pip_does() -> None:
    listed = """:env:.disable-pip-version-check='1'
:env:.find-links='/wheels /more'
global.cert='/certificates.pem'
global.find-links='/other'
global.index-url='https://user:word@packages.example.com/simple'
"""
    assert uv_variables(pip_settings(listed)) == {
        "UV_SYSTEM_CERTS": "1",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/certificates.pem",
        "UV_DEFAULT_INDEX": "https://user:word@packages.example.com/simple",
    }


def test_two_set_ups_work_one_after_the_other(tmp_path: Path) -> None:
    with alone(tmp_path / ".venv"):
        second = subprocess.Popen(
            [sys.executable, "-c", _ALONE, str(tmp_path / ".venv")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert second.stderr.readline() == "Waiting for another set-up of .venv\n"
        assert second.poll() is None
    assert second.communicate(timeout=WATCHDOG_S)[0] == "1\n"


def test_an_unknown_group_is_named_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["all"]) == 2
    assert capsys.readouterr().err == f"all: name one group of packages: {', '.join(read_groups())}\n"


def test_without_a_compiler_and_a_wheel_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**_OFFLINE, "CC": "no-such-compiler", "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(CannotSetUp, match=r"^[^\n]* the C compiler \(no-such-compiler\) is missing\. [^\n]*$"):
        check_compiler(Path(sys.executable), "python-qpid-proton==0.40.0")


def test_a_python_that_cannot_make_environments_is_one_line(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError", encoding="utf-8")

    code, (line,) = make_setup(clone, PYTHONPATH=str(tmp_path))

    assert code != 0
    assert "has no module ensurepip" in line
    assert f"apt-get install python3.{sys.version_info[1]}-venv" in line
    assert not (clone / ".venv").exists()


def test_a_python_that_is_not_there_is_one_line(clone: Path) -> None:
    code, (line,) = make_setup(clone, PYTHON="/no/such/python3")

    assert code != 0
    assert line.startswith(
        "Python 3.11 or later is needed, and /no/such/python3 is not found: install it, or set PYTHON"
    )


def test_an_old_python_is_named_with_its_version() -> None:
    with pytest.raises(CannotSetUp, match=r"Python 3\.11 or later is needed, and \S.* is 3\.9\.2\. .* PYTHON="):
        check_python((3, 9, 2))


def test_an_environment_of_another_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /opt/other/bin\nversion = 3.11.0\n", encoding="utf-8")
    with pytest.raises(CannotSetUp, match=r"made by the Python in /opt/other/bin.*make clean"):
        check_existing(tmp_path)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {sys.base_exec_prefix}/bin\n", encoding="utf-8")
    check_existing(tmp_path)
