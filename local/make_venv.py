"""Make .venv, and install a group of pinned packages into it. `make` runs this; without make:

    python3 local/make_venv.py         # the tests
    python3 local/make_venv.py local   # the local stack and the demo
    python3 local/make_venv.py sql     # and PostgreSQL, for --source sql

pyproject.toml lists the groups. The environment grows: a later group adds to an earlier one. pip installs uv, and
uv the packages: it compiles python-qpid-proton while it fetches the others. uv gets them from where pip's settings
say, unless its own variables (UV_…) say otherwise.

Exits with 1, and one line that says what to do, if Python is too old or cannot make environments, or if
python-qpid-proton cannot be compiled. Needs the standard library alone, and can be read by older Pythons too.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    Groups: TypeAlias = dict[str, list[str | dict[str, str]]]

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)

BESIDE_LOCAL = (
    *("-r", "requirements.txt"),
    *("-e", "./packages/command_line"),
    *("-e", "./packages/operator[console]"),
    *("-e", "./packages/inbox[cli,telemetry]"),
    *("-e", "./packages/outbox[telemetry,pydantic]"),
    *("-e", "./packages/emulators[all]"),
)
"""Further requirements of the group `local`: the packages of the app, and those of this repository."""

_FORMER_NAMES = ("cosmos-outbox", "outbox-emulators", "servicebus-inbox")
"""Distributions of this repository that an older environment has, with a pytest plugin that no longer exists."""

_DEFAULT = "test"
_INSTALLER = "lock"
_WORKER = "worker"
_COMPILED = "python-qpid-proton"
_SHOWN = re.compile(rf" *(Resolved|Building {_COMPILED}|Prepared|Installed)\b")
_LAST_LINES = 30
_OF_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""The variable of uv for each setting of pip that says where packages are, and how to reach them."""


class CannotSetUp(Exception):
    """A missing prerequisite, and its remedy."""


def read_groups() -> Groups:
    """Return the groups of packages, by name."""
    import tomllib

    found: Groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    return found


def included(name: str, groups: Groups) -> set[str]:
    """Return the names of a group and of all that it includes."""
    inner = [each["include-group"] for each in groups[name] if isinstance(each, dict)]
    return {name}.union(*(included(each, groups) for each in inner))


def requirements(name: str, groups: Groups) -> list[str]:
    """Return the requirements of a group and of all that it includes."""
    return [line for each in sorted(included(name, groups)) for line in groups[each] if isinstance(line, str)]


def check_python(version: tuple[int, ...]) -> None:
    """Raise CannotSetUp if this Python cannot be used."""
    if version < OLDEST:
        raise CannotSetUp(
            f"Python {'.'.join(map(str, OLDEST))} or later is needed, and {sys.executable} is "
            f"{'.'.join(map(str, version[:3]))}. Install one (https://www.python.org/downloads/), and name it: "
            "export PYTHON=/path/to/python"
        )
    for name, package in (("venv", "-venv"), ("ensurepip", "-venv"), ("ssl", "")):
        try:
            __import__(name)
        except ImportError:
            raise CannotSetUp(
                f"{sys.executable} has no module {name}, which virtual environments and pip need. Install it "
                f"(Debian, Ubuntu: apt-get install python3.{version[1]}{package}), "
                "or name another Python: export PYTHON=/path/to/python"
            ) from None


def check_existing(folder: Path) -> None:
    """Raise CannotSetUp if the environment is that of another Python: with parts of two, it would not work."""
    configuration = folder / "pyvenv.cfg"
    if not configuration.is_file():
        return
    home = re.search(r"^home = (.+)$", configuration.read_text(encoding="utf-8"), re.MULTILINE)
    own = Path(sys.base_exec_prefix).resolve()
    if home is not None and own not in Path(home[1].strip()).resolve().parents:
        raise CannotSetUp(
            f"{folder} was made by the Python in {home[1].strip()}, and this is {sys.executable}. "
            "Remove it (make clean), or name that Python: export PYTHON=/path/to/python"
        )


def make_environment(folder: Path) -> Path:
    """Make the virtual environment, unless it is there and has pip; returns its Python."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.is_file() or _run([str(python), "-m", "pip", "--version"])[0] != 0:
        code, output = _run([sys.executable, "-m", "venv", str(folder)])
        if code != 0:
            raise CannotSetUp(f"{output}{sys.executable} could not make {folder}: its output is above.")
    return python


def check_compiler(python: Path, requirement: str) -> None:
    """Raise CannotSetUp if python-qpid-proton has no wheel and cannot be compiled."""
    command = [str(python), str(ROOT / "packages/emulators/compiler.py"), requirement]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    if checked.returncode != 0:
        raise CannotSetUp(checked.stderr.strip())


def install(python: Path, name: str, groups: Groups) -> None:
    """Install a group.

    Raises:
        CannotSetUp: pip or uv failed; with the end of its output.
    """
    pip = [str(python), "-m", "pip"]
    uv = requirements(_INSTALLER, groups)
    code, output = _run([*pip, "install", "--quiet", "--disable-pip-version-check", *uv])
    if code != 0:
        raise CannotSetUp(f"{output}pip could not install uv: its output is above.")
    settings = pip_settings(_run([*pip, "config", "list"])[1])
    beside = BESIDE_LOCAL if "local" in included(name, groups) else ()
    offline = ["--no-index"] if "no-index" in settings else []
    if beside:
        _run([str(python), "-m", "uv", "pip", "uninstall", "--quiet", "--python", str(python), *_FORMER_NAMES])
    command = [str(python), "-m", "uv", "pip", "install", "--python", str(python), *offline]
    code, output = _run([*command, "--group", name, *beside], **uv_variables(settings))
    if code != 0:
        raise CannotSetUp(f"{output}uv could not install the group {name}: its last lines are above.")


def pip_settings(listed: str) -> dict[str, str]:
    """Return pip's settings from the output of `pip config list`, in which the variables come first and win."""
    found: dict[str, str] = {}
    for name, value in re.findall(r"^[^.\n]+\.([\w-]+)=(.+)$", listed, re.MULTILINE):
        found.setdefault(name, ast.literal_eval(value))
    return found


def uv_variables(settings: dict[str, str]) -> dict[str, str]:
    """Return the environment variables with which uv gets its packages from where pip does."""
    # As pip since 24.2: the certificates of the operating system.
    found = {"UV_SYSTEM_CERTS": "1"}
    for name, variable in _OF_UV.items():
        if name in settings:
            found[variable] = ("," if name == "find-links" else " ").join(settings[name].split())
    return found


def _run(command: list[str], **defaults: str) -> tuple[int, str]:
    """Run a command in the project's folder, and show the steps of uv; returns its exit code and its last lines.

    Args:
        command: Its words.
        defaults: Environment variables for the command, unless they are set.
    """
    since = time.monotonic()
    lines = []
    environment = {**defaults, **os.environ}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if _SHOWN.match(line):
                print(f"  {time.monotonic() - since:3.0f} s  {line.strip()}", file=sys.stderr, flush=True)
    return process.returncode, "".join(lines[-_LAST_LINES:])


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other set-up works on this environment: two at a time would break it."""
    folder.mkdir(exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    # uv locks `.lock` there itself.
    with (folder / ".lock-of-set-up").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"Waiting for another set-up of {folder.name}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def set_up(folder: Path, name: str, groups: Groups) -> None:
    """Make the environment, and install a group into it. Raises CannotSetUp."""
    python = make_environment(folder)
    for requirement in requirements(name, groups):
        if requirement.startswith(f"{_COMPILED}=="):
            check_compiler(python, requirement)
    install(python, name, groups)
    for each in included(name, groups):
        (folder / f".installed-{each}").touch()


def main(words: Sequence[str]) -> int:
    """Make and fill the environment; returns the exit code."""
    since = time.monotonic()
    try:
        check_python(sys.version_info[:3])
        groups = read_groups()
        name = words[0] if words else _DEFAULT
        if name not in groups or len(words) > 1:
            print(f"{' '.join(words)}: name one group of packages: {', '.join(groups)}", file=sys.stderr)
            return 2
        folder = ROOT / (".venv-worker" if name == _WORKER else ".venv")
        check_existing(folder)
        with alone(folder):
            print(f"Setting up {folder.name} with Python {sys.version.split()[0]}", file=sys.stderr, flush=True)
            set_up(folder, name, groups)
    except CannotSetUp as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: run it again to continue.", file=sys.stderr)
        return 130
    print(f"{folder.name} is ready, after {time.monotonic() - since:.0f} s.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
