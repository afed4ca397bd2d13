"""The lock of a running stack, a file next to its env file that only one stack holds, and how to find the stack.

The operating system releases the lock when the process ends, however it ends. So a file that is left behind names
no stack that runs; it has how the last one ended, if it was not stopped.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BufferedRandom
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dotenv import dotenv_values

from outbox_relay.command_line import python

DEFAULT_ENV_FILE = Path(".local/stack.env")

# A reader holds a shared lock for a moment, and a writer needs a moment for its text.
_PATIENCE_S = 1.0
_POLL_EVERY_S = 0.02

# On Windows locked bytes cannot be read: the lock is on one that is never written.
_LOCKED_BYTE = 1 << 30

READY = "LOCAL_STACK_READY"


@dataclass(frozen=True, slots=True)
class Running:
    """A stack that runs.

    Attributes:
        pid: Its process.
        ready_url: Its readiness probe; None while it starts.
        lines: The lines that it printed when it was ready.
    """

    pid: int
    ready_url: str | None = None
    lines: tuple[str, ...] = ()


class AlreadyRunsError(Exception):
    """A stack with this env file runs already; the message says where, and how to stop it or start another."""


class Lock:
    """Held while the stack runs; use it as a context manager."""

    def __init__(self, env_file: Path) -> None:
        self._env_file = env_file
        self._file: BufferedRandom

    def __enter__(self) -> Self:
        """Take it. Raises AlreadyRunsError."""
        path = _path(self._env_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open(path)
        until = time.monotonic() + _PATIENCE_S
        while not _try_lock(self._file, shared=False):
            if time.monotonic() > until:
                self._file.close()
                raise AlreadyRunsError(already_runs(self._env_file))
            time.sleep(_POLL_EVERY_S)
        self._write(asdict(Running(os.getpid())))
        return self

    def ready(self, url: str, lines: Sequence[str]) -> None:
        """Say that the stack is ready."""
        self._write(asdict(Running(os.getpid(), url, tuple(lines))))

    def _write(self, state: Mapping[str, Any] | None) -> None:
        self._file.seek(0)
        self._file.truncate()
        if state is not None:
            self._file.write(json.dumps(state).encode())
        self._file.flush()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Everything else is a signal, or the end.
        self._write({"ended": str(exception)} if isinstance(exception, Exception) else None)
        self._file.close()


def running(env_file: Path) -> Running | None:
    """Return the stack that writes this env file, or None if none runs."""
    path = _path(env_file)
    if not path.exists():
        return None
    until = time.monotonic() + _PATIENCE_S
    while True:
        with _open(path) as file:
            if _try_lock(file, shared=True):
                return None
            try:
                state = json.loads(file.read())
                return Running(state["pid"], state["ready_url"], tuple(state["lines"]))
            except ValueError:
                # It has just taken the lock, or is about to release it.
                if time.monotonic() > until:
                    raise
        time.sleep(_POLL_EVERY_S)


def last_end(env_file: Path) -> str | None:
    """Return how the last stack of this env file ended, in a sentence; None if it was stopped, or one runs."""
    path = _path(env_file)
    if not path.exists() or running(env_file) is not None:
        return None
    with _open(path) as file:
        try:
            state = json.loads(file.read())
        except ValueError:
            return None
    if (ended := state.get("ended")) is not None:
        return f"The last one ended by itself: {ended}"
    return f"The last one was killed: process {state.get('pid')} ended without a word, and its parts with it."


def already_runs(env_file: Path) -> str:
    """Describe where the stack of this env file runs, and what to do."""
    stack = running(env_file)
    where = "" if stack is None else f": process {stack.pid}" + (f", {stack.ready_url}" if stack.ready_url else "")
    return (
        f"A local stack runs already{where}. Stop it with `{python()} -m local down{option(env_file)}`, or start "
        f"another one with `{python()} -m local up --port 0 --env-file .local/second.env "
        "--logs .local/second-logs`."
    )


def none_runs(env_file: Path) -> str:
    """Return that no stack of this env file runs, how the last one ended, and how to start one."""
    end = last_end(env_file)
    sentences = ["No local stack runs.", *([] if end is None else [end]), f"{how_to_start(env_file)}."]
    return ("\n" if end and "\n" in end else " ").join(sentences)


def how_to_start(env_file: Path) -> str:
    """Return the beginning of a sentence with the command that starts the stack of this env file."""
    return f"Start one with `{python()} -m local up --detach{option(env_file)}`"


def option(env_file: Path) -> str:
    """Return the option that other commands need for this env file.

    It begins with a space; it is empty for the default.
    """
    return "" if env_file == DEFAULT_ENV_FILE else f" --env-file {shlex.quote(str(env_file))}"


def _path(env_file: Path) -> Path:
    return env_file.with_name(env_file.name + ".lock")


def _open(path: Path) -> BufferedRandom:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
    return os.fdopen(descriptor, "r+b")


def _try_lock(file: BufferedRandom, *, shared: bool) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_LOCKED_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0)
        else:
            import fcntl

            fcntl.flock(file.fileno(), (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        return False
    return True


class NoStackError(Exception):
    """No stack runs with this env file; the message says how to start one, or to name another's."""


def settings_of_running(env_file: Path) -> Mapping[str, str]:
    """Return the settings that a running stack has written. Raises NoStackError."""
    remedy = f"{how_to_start(env_file)}, or name its file with --env-file."
    if not env_file.exists():
        raise NoStackError(f"No local stack runs: there is no {env_file}. {remedy}")
    try:
        values = {name: value for name, value in dotenv_values(env_file).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise NoStackError(f"{env_file} cannot be read: {error}. {remedy}") from error
    if not ("COSMOS" in values or "SQL" in values):
        raise NoStackError(f"{env_file} is not the file of a local stack: it has neither COSMOS nor SQL. {remedy}")
    # A demo's stack has no lock.
    if READY in values and running(env_file) is None:
        raise NoStackError(f"The local stack of {env_file} does not run any more. {remedy}")
    return values
