"""Make .venv, and install a set of pinned packages into it. `make` runs this; without make:

    python3 local/make_venv.py         # what the tests and the linters need
    python3 local/make_venv.py local   # the local stack and the demo
    python3 local/make_venv.py sql     # and what they need with --source sql
    python3 local/make_venv.py docs    # everything, also what `make docs` needs

The environment grows: a later set adds to an earlier one. Ends with 1, and one line that says what to do, if
Python is too old or cannot make environments, or if python-qpid-proton cannot be compiled. Needs the standard
library alone, and can be read by older Pythons too.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
SETS = ("local", "sql", "dev", "docs")
"""Each contains the sets before it, and is listed in `requirements-NAME.txt`."""

_DEFAULT = "dev"
_DEPLOYED = "requirements.txt"
_COMPILED = "python-qpid-proton"
_BUILDING = "hatchling"
OLDEST = (3, 11)
_STEPS = (
    ("collecting", re.compile(r" *(?:Collecting|Processing) (?:\S*/)?([\w.-]+)")),
    ("building", re.compile(r" *Building (?:wheel|editable) for ([\w.-]+)")),
    ("installing", re.compile(r" *Installing collected packages: (.+)")),
)
_LAST_LINES = 30


class CannotSetUp(Exception):
    """A missing prerequisite, and its remedy."""


class Progress:
    """Progress of pip: one updating line on a terminal, one line per step otherwise."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._terminal = output.isatty()
        self._since = time.monotonic()
        self._shown = ""
        self._now = ""

    @property
    def seconds(self) -> int:
        """The time since the start."""
        return int(time.monotonic() - self._since)

    def begin(self, step: str) -> None:
        """Show this step."""
        self._now = step
        self.show()

    def read(self, line: str) -> None:
        """Show the step that a line of pip's output begins, if it does."""
        for name, pattern in _STEPS:
            match = pattern.match(line)
            if match is not None:
                package = re.split(r"-\d", match[1])[0]
                self._now = {
                    "collecting": f"collecting {package if self._terminal else 'packages'}",
                    "building": f"building {package}",
                    "installing": f"installing {len(match[1].split(','))} package(s)",
                }[name]
        self.show()

    def show(self) -> None:
        """Show the step again: on a terminal with its time, elsewhere only if it is another one."""
        if not self._now:
            return
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            line = f"Setting up .venv: {self._now}  {self.seconds} s"
            self._output.write(f"\r\x1b[K{line[:width]}")
            self._output.flush()
        elif self._now != self._shown:
            print(f"  {self.seconds:3} s  {self._now}", file=self._output, flush=True)
        self._shown = self._now

    def end(self) -> None:
        """Clear the line that changes."""
        if self._terminal:
            self._output.write("\r\x1b[K")
            self._output.flush()


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


def make_environment(folder: Path, progress: Progress) -> Path:
    """Make the virtual environment, unless it is there and has pip; returns its Python."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.is_file() or run([str(python), "-m", "pip", "--version"], progress)[0] != 0:
        progress.begin("making the environment")
        code, output = run([sys.executable, "-m", "venv", str(folder)], progress)
        if code != 0:
            raise CannotSetUp(
                "".join([*output, f"{sys.executable} could not make {folder}: its output is above."])
            )
    return python


def check_compiler(python: Path) -> None:
    """Raise CannotSetUp if python-qpid-proton has no wheel and cannot be compiled."""
    command = [str(python), str(ROOT / "emulators/compiler.py"), *_pinned(_COMPILED)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    if checked.returncode != 0:
        raise CannotSetUp(checked.stderr.strip())


def _pinned(package: str) -> list[str]:
    """The requirement of a package, if a set lists it."""
    files = [ROOT / f"requirements-{name}.txt" for name in SETS]
    lines = [line for file in files if file.exists() for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.startswith(f"{package}==")]


def install(python: Path, name: str, progress: Progress) -> None:
    """Install a set.

    Raises:
        CannotSetUp: pip failed; with the end of its output.
    """
    first = not _stamp(SETS[0]).exists()
    if first:
        _install_first(python, progress)
    if not (first and name == SETS[0]):
        _install(python, progress, f"requirements-{name}.txt")


def _install_first(python: Path, progress: Progress) -> None:
    """Install the first set into a new environment, in little time.

    python-qpid-proton is compiled while most other packages are installed, which takes about as long. And the
    packages of this repository are built without an environment of its own for each, which pip would fill anew.
    """
    requirements = f"requirements-{SETS[0]}.txt"
    with tempfile.TemporaryDirectory() as wheels:
        with _pip(python, "wheel", "--no-deps", "--wheel-dir", wheels, *_pinned(_COMPILED)) as compiling:
            _install(python, progress, _DEPLOYED, *_pinned(_BUILDING))
            progress.begin(f"building {_COMPILED}")
            while _runs(compiling):
                progress.show()
        progress.begin("collecting packages")
        options = ("--no-build-isolation", "--find-links", wheels)
        # If it could not be compiled, pip tries it again here, and shows why.
        _install(python, progress, requirements, *(options if compiling.returncode == 0 else ()))


@contextmanager
def _pip(python: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """pip in the background, without its output; it ends with the block."""
    command = [str(python), "-m", "pip", *words]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _runs(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process still runs a second later."""
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return True
    return False


def _install(python: Path, progress: Progress, requirements: str, *more: str) -> None:
    options = ("--progress-bar", "off", "--no-color", "--disable-pip-version-check", *more)
    code, output = run([str(python), "-m", "pip", "install", *options, "-r", requirements], progress)
    if code != 0:
        end = "".join(output[-_LAST_LINES:])
        raise CannotSetUp(f"{end}pip could not install {requirements}: its last lines are above.")


def run(command: list[str], progress: Progress) -> tuple[int, list[str]]:
    """Run a command in the project's folder, and show how it continues; returns its exit code and its lines."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    output: list[str] = []
    while True:
        try:
            line = lines.get(timeout=1)
        except queue.Empty:
            progress.show()
            continue
        if line is None:
            return process.wait(), output
        output.append(line)
        progress.read(line)


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other set-up works on this environment: two at a time would break it."""
    folder.mkdir(exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Waiting for another set-up of .venv", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stamp(name: str) -> Path:
    return ROOT / f".venv/.installed-{name}"


def set_up(name: str, progress: Progress) -> None:
    """Make the environment, and install a set into it. Raises CannotSetUp."""
    try:
        python = make_environment(ROOT / ".venv", progress)
        check_compiler(python)
        install(python, name, progress)
    finally:
        progress.end()
    for each in SETS[: SETS.index(name) + 1]:
        _stamp(each).touch()
    print(f".venv is ready, after {progress.seconds} s.", file=sys.stderr)


def main(words: Sequence[str]) -> int:
    """Make and fill the environment; returns the exit code."""
    name = words[0] if words else _DEFAULT
    if name not in SETS or len(words) > 1:
        print(f"{' '.join(words)}: name one set of packages: {', '.join(SETS)}", file=sys.stderr)
        return 2
    try:
        check_python(sys.version_info[:3])
        check_existing(ROOT / ".venv")
        with alone(ROOT / ".venv"):
            print(f"Setting up .venv with Python {sys.version.split()[0]}", file=sys.stderr, flush=True)
            set_up(name, Progress(sys.stderr))
    except CannotSetUp as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: run it again to continue.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
