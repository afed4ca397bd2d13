"""Hooks that fail the test which leaves something behind, in place of whichever test comes next.

Leaks are, after a test and the teardown of its fixtures: tasks on its event loop, threads, child processes, open
sockets, changed environment variables, and unraisable exceptions, such as a `ResourceWarning` or a coroutine that
was never awaited; and, from the beginning of the test, what asyncio reports, such as an error that nobody has
retrieved. Fixtures of a wider scope may hold what they make. `PYTHONTRACEMALLOC=20` adds the place where an object
was made. Levels of loggers and the root's handlers, which a program sets for its process, are as they were again
after each test, even if a fixture of a wider scope has set them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.threadexception import collect_thread_exception
from _pytest.unraisableexception import collect_unraisable

ENDS_WITHIN_S = 60.0
"""Seconds for a task, a thread, a process or another thread's socket to end. Only a leak takes so long."""

_POLL_EVERY_S = 0.01
_COLLECT_EVERY_S = 0.1
_SPINS = 10
"""Iterations of the event loop for transports that have been closed to end."""
_RUNNER = "_function_scoped_runner"
"""The fixture of pytest-asyncio (1.5) that closes a test's event loop, and first cancels each task on it."""


@dataclass(frozen=True, slots=True)
class Held:
    """Threads, child processes and sockets of this process by identity, and its environment variables."""

    threads: dict[int, threading.Thread]
    children: set[int]
    sockets: set[str]
    environment: dict[str, str]

    @classmethod
    def now(cls) -> Held:
        threads = {id(thread): thread for thread in threading.enumerate()}
        return cls(threads, _children(), _sockets(), _environment())

    def add(self, before: Held, after: Held) -> None:
        """Add what `after` has and `before` has not."""
        self.threads.update({key: after.threads[key] for key in after.threads.keys() - before.threads.keys()})
        self.children.update(after.children - before.children)
        self.sockets.update(after.sockets - before.sockets)
        if after.environment != before.environment:
            self.environment.clear()
            self.environment.update(after.environment)


@dataclass(frozen=True, slots=True)
class Logging:
    """The levels of all loggers, and the root's handlers."""

    levels: dict[logging.Logger, int]
    handlers: list[logging.Handler]

    @classmethod
    def now(cls) -> Logging:
        known = (logging.root, *logging.root.manager.loggerDict.values())
        levels = {each: each.level for each in known if isinstance(each, logging.Logger)}
        return cls(levels, logging.root.handlers[:])

    def restore(self) -> None:
        """Undo what has changed since. A logger that is new has no level then."""
        logging.root.handlers[:] = self.handlers
        for logger, level in Logging.now().levels.items():
            if level != (before := self.levels.get(logger, logging.NOTSET)):
                logger.setLevel(before)


_OF_LIBRARIES = frozenset({"tqdm_monitor"})
"""Names of threads that a library starts once for the whole process, here sqlfluff's progress bar."""

_ALLOWED = pytest.StashKey[Held]()
_LOGGING = pytest.StashKey[Logging]()
_TASKS = pytest.StashKey[list[str]]()
_REPORTS = pytest.StashKey["_Reports"]()
_ENDS_WITH_MODULE = pytest.StashKey[bool]()
"""True in a module, from the first of its fixtures that several tests share."""

_connection_lost = asyncio.StreamReaderProtocol.connection_lost


def pytest_configure() -> None:
    """Let the error of a stream's connection be retrieved when it occurs, for all of this process."""
    setattr(asyncio.StreamReaderProtocol, "connection_lost", _lose_connection)  # noqa: B010


def _lose_connection(stream: asyncio.StreamReaderProtocol, error: Exception | None) -> None:
    """End a stream. Who waits for its end still gets the error.

    asyncio retrieves it in the finalizer of a stream that is dropped, so that it is not reported. In a cycle of
    references, the garbage collector may finalize the future before the stream.
    """
    _connection_lost(stream, error)
    closed: asyncio.Future[None] = stream._closed  # type: ignore[attr-defined]
    if closed.done() and not closed.cancelled():
        closed.exception()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without collecting garbage, of which there is none: all modules and tests stay.

    Every process of pytest-xdist collects all tests, and a quarter of its time went into looking at them again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Remember what there is before the test's own setup."""
    item.stash[_ALLOWED] = Held.now()
    item.stash[_LOGGING] = Logging.now()
    item.stash[_TASKS] = []
    item.stash[_REPORTS] = _Reports()
    logging.getLogger("asyncio").addHandler(item.stash[_REPORTS])
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Allow what fixtures of a wider scope hold, and look at a test's tasks before its event loop is closed."""
    if fixturedef.scope == "function":
        value = yield
        if fixturedef.argname == _RUNNER and isinstance(value, asyncio.Runner):
            fixturedef.addfinalizer(partial(_note_tasks, value, request.node))
        return value
    if fixturedef.scope != "session":
        _module(request._pyfuncitem).stash[_ENDS_WITH_MODULE] = True
    before = Held.now()
    try:
        return (yield)
    finally:
        request._pyfuncitem.stash[_ALLOWED].add(before, Held.now())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Fail the test if anything is left of it."""
    try:
        return (yield)
    finally:
        _forget(item)
        item.stash[_LOGGING].restore()
        left = _left_behind(item)
        logging.getLogger("asyncio").removeHandler(item.stash[_REPORTS])
        left += item.stash[_REPORTS].texts
        shared = _module(item).stash.get(_ENDS_WITH_MODULE, False)
        if not shared or nextitem is None or nextitem.path != item.path:
            # What stays now stays for long: the next collections need not look at it.
            gc.freeze()
        if left:
            pytest.fail("\n".join(("The test leaves behind:", *left)), pytrace=False)


def _module(item: pytest.Item) -> pytest.Module:
    module = item.getparent(pytest.Module)
    assert module is not None
    return module


def _forget(item: pytest.Item) -> None:
    """Drop what pytest keeps until the next test: values of fixtures, and frames of errors, raised or logged."""
    vars(item).get("funcargs", {}).clear()
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    logged = item.config.pluginmanager.get_plugin("logging-plugin")
    if logged is not None:
        logged.caplog_handler.reset()
        logged.report_handler.reset()


def _left_behind(item: pytest.Item) -> list[str]:
    allowed = item.stash[_ALLOWED]
    goes_on = _goes_on(item)
    left = item.stash[_TASKS]
    gc.collect()
    threads = _new_threads(allowed)
    if not goes_on and (threads or _children() - allowed.children):
        until = time.monotonic() + ENDS_WITHIN_S
        left += [f"- child process {child}: {_command(child)}" for child in _children_left(allowed, until)]
        left += [f"- {_thread(thread)}" for thread in threads if not _ends(thread, until)]
        # Their ends drop objects, such as the pipes of a process.
        gc.collect()
    left += _raised(collect_unraisable, item.config)
    left += _raised(collect_thread_exception, item.config)
    if not goes_on:
        left += [f"- {socket} ({_addresses(socket)})" for socket in _sockets_left(allowed)]
    left += [f"- the environment variable {name}" for name in _restore(allowed.environment)]
    return left


def _goes_on(item: pytest.Item) -> bool:
    """Return True if the test's event loop stays, with its threads, connections and child processes."""
    marker = item.get_closest_marker("asyncio")
    return marker is not None and marker.kwargs.get("loop_scope", "function") != "function"


def _note_tasks(runner: asyncio.Runner, item: pytest.Item) -> None:
    item.stash[_TASKS] += [f"- {task!r}" for task in runner.run(_pending_tasks())]


async def _pending_tasks() -> set[asyncio.Task[Any]]:
    """Return the tasks that do not end by themselves, such as a session's that closes in the background."""
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    until = loop.time() + ENDS_WITHIN_S
    while (pending := asyncio.all_tasks() - {current}) and (left_s := until - loop.time()) > 0:
        await asyncio.wait(pending, timeout=left_s)
    for _ in range(_SPINS):
        await asyncio.sleep(0)
    return asyncio.all_tasks() - {current}


class _Reports(logging.Handler):
    """Collects what asyncio reports: errors of callbacks, and what is dropped before its end, such as a task."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"- {record.getMessage()}")


def _raised(collect: Callable[[pytest.Config], None], config: pytest.Config) -> list[str]:
    try:
        collect(config)
    except Exception as error:  # noqa: BLE001 - reported with everything else that the test has left
        return [f"- {''.join(traceback.format_exception(error))}"]
    return []


def _new_threads(allowed: Held) -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if id(thread) not in allowed.threads and thread.name not in _OF_LIBRARIES
    ]


def _ends(thread: threading.Thread, until: float) -> bool:
    """Wait for a thread; return False if it does not end. That of a pool ends once the pool is collected."""
    while thread.is_alive() and (left_s := until - time.monotonic()) > 0:
        thread.join(min(_COLLECT_EVERY_S, left_s))
        gc.collect()
    return not thread.is_alive()


def _thread(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    where = "".join(traceback.format_stack(frame)) if frame is not None else ""
    return f"{thread!r} at\n{where}"


def _environment() -> dict[str, str]:
    """Return the environment without what pytest sets for each phase of a test."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def _restore(environment: dict[str, str]) -> list[str]:
    """Restore the environment; returns the names of what has changed."""
    now = _environment()
    changed = sorted(name for name in now.keys() | environment.keys() if now.get(name) != environment.get(name))
    for name in changed:
        if name in environment:
            os.environ[name] = environment[name]
        else:
            del os.environ[name]
    return changed


def _sockets_left(allowed: Held) -> list[str]:
    """Return the sockets that stay. A server in another thread closes its end when it sees that the client has."""
    until = time.monotonic() + (ENDS_WITHIN_S if threading.active_count() > 1 else 0.0)
    while (left := _sockets() - allowed.sockets) and time.monotonic() < until:
        time.sleep(_POLL_EVERY_S)
    return sorted(left)


def _children_left(allowed: Held, until: float) -> set[int]:
    while (left := _children() - allowed.children) and time.monotonic() < until:
        time.sleep(_POLL_EVERY_S)
    return left


def _children() -> set[int]:
    """Return the ids of the child processes of this process, without Linux's /proc none."""
    children: set[int] = set()
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return children
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                children.update(map(int, file.read().split()))
        except OSError:
            continue  # The thread has ended.
    return children


def _command(child: int) -> str:
    try:
        return Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ").strip() or "ended, and not waited for"
    except OSError:
        return "ended"


def _sockets() -> set[str]:
    """Return the sockets of this process, as `socket:[INODE]`, without Linux's /proc none."""
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return set()
    return {target for each in descriptors if (target := _target(each)).startswith("socket:")}


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""  # It has been closed.


def _addresses(socket: str) -> str:
    """Return what the system's tables say of a socket: its addresses, or the path of one of the Unix domain."""
    inode = socket.removeprefix("socket:[").removesuffix("]")
    for table in ("tcp", "tcp6", "udp", "unix"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if inode in (columns := line.split()):
                return f"{table} {' '.join(columns[1:4])}"
    return "closed by the other side, or never bound"
