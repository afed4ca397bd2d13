"""Runs tests on mutants: in a copy of the project, in one forked process each.

The copy makes that processes which tests start meet the mutant too. What the tests need of other projects is
imported once, before the fork; the project's own modules are imported anew by every fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

from tests.mutants.mutations import Mutant

_PRELOADED = (
    *("azure.cosmos.aio", "azure.functions", "azure.identity.aio", "azure.servicebus.aio", "aiohttp", "orjson"),
    *(
        "azure.servicebus.aio.management",
        "azure.core.tracing",
        "rich.console",
        "httpx",
        "_pytest.assertion.rewrite",
    ),
    *("opentelemetry.trace", "opentelemetry.metrics", "opentelemetry.sdk.trace", "opentelemetry.sdk.metrics"),
    *("pytest_asyncio.plugin", "pytest_timeout", "hypothesis", "hypothesis.strategies"),
)
_NOT_COPIED = (".venv*", ".git", ".local", ".*_cache", ".hypothesis", "__pycache__", "node_modules")
_LEAST_S = 20.0


class BrokenError(Exception):
    """The tests do not pass on the project as it is, so they say nothing of mutants."""


class Workbench:
    """A copy of the project, in which mutants are tried."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        self._copy = Path(self._folder.name) / "project"
        self._tries = 0

    def __enter__(self) -> Workbench:
        shutil.copytree(self._root, self._copy, ignore=shutil.ignore_patterns(*_NOT_COPIED), symlinks=True)
        for name in _PRELOADED:
            importlib.import_module(name)
        # What is here before the fork is not the tests' garbage: pytest collects several times in a run.
        gc.collect()
        gc.freeze()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def limit_s(self, tests: Sequence[str]) -> float:
        """How long a mutant may take, by how long the tests take without one. Raises BrokenError."""
        began = time.monotonic()
        failed, output = self._run(tests, 600, bytecode=True)
        if failed is not False:
            raise BrokenError(f"these fail without a mutant: {' '.join(tests)}\n{output}")
        return max(_LEAST_S, 5 * (time.monotonic() - began))

    def outcome(self, mutant: Mutant, tests: Sequence[str], limit_s: float) -> str:
        """Return "killed" if one of `tests` fails on `mutant`, "survived" if all pass.

        "timed_out" if they do not end within `limit_s` seconds: the mutant never ends, or the machine is busy.
        """
        path = self._copy / mutant.path
        whole, stat = path.read_bytes(), path.stat()
        self._tries += 1
        try:
            path.write_text(mutant.text)
            # A separate time, so that no cached bytecode is taken for the mutant's.
            os.utime(path, (self._tries, self._tries))
            failed = self._run(tests, limit_s, bytecode=False)[0]
        finally:
            path.write_bytes(whole)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        return "timed_out" if failed is None else "killed" if failed else "survived"

    def _run(self, tests: Sequence[str], limit_s: float, *, bytecode: bool) -> tuple[bool | None, str]:
        """Return True if a test fails, None if they do not end in time, and the last of their output."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            child = os.fork()
            if child == 0:
                os._exit(self._in_child(tests, limit_s, output.fileno(), bytecode))
            try:
                failed = _wait(child, limit_s)
            finally:
                _end(child)
            output.seek(0)
            return failed, output.read()[-3000:]

    def _in_child(self, tests: Sequence[str], limit_s: float, output: int, bytecode: bool) -> int:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(self._copy)
        paths = [str(self._copy), *map(str, sorted(self._copy.glob("packages/*/src")))]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        sys.path[:] = paths + [path for path in sys.path if path not in ("", str(self._root))]
        sys.dont_write_bytecode = not bytecode
        os.environ["PYTHONDONTWRITEBYTECODE"] = "" if bytecode else "1"
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        plugins = ("-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", "-p", "no:cacheprovider")
        # What everyone runs has to notice a change.
        options = ("-x", "-q", "--no-header", "--tb=short", "-m", "not slow", *plugins)
        return int(pytest.main([*options, f"--rootdir={self._copy}", f"--timeout={limit_s:g}", *tests]))


def _wait(child: int, limit_s: float) -> bool | None:
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status != 0
        time.sleep(0.01)
    return None


def _end(child: int) -> None:
    """End the fork, and what its tests have left running."""
    try:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        return
