"""Where workers come from: each is a fork of a process that has imported what takes long to import.

All else a worker does itself, in the deployed order: it configures the exporter, then loads the app.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]

_LIBRARIES = (
    "azure.cosmos.aio",
    "azure.functions",
    "azure.identity.aio",
    "azure.monitor.opentelemetry",
    "azure.servicebus.aio",
)
# What the exporter's distribution looks for when it is configured. Some do not find the library that they are for.
_PLUG_INS = ("opentelemetry_instrumentor", "opentelemetry_resource_detector")


class Nursery:
    """Forks workers until it is closed, which ends those that are left.

    With `libraries=False` it has imported nothing: its workers start as cold as a separate process.
    """

    def __init__(self, *, libraries: bool = True) -> None:
        self._control, theirs = socket.socketpair()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "COSMOS"))}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *(["libraries"] if libraries else [])],
                cwd=ROOT,
                env=inherited,
                pass_fds=[theirs.fileno()],
            )

    def close(self) -> None:
        self._control.close()
        self._process.wait(timeout=WATCHDOG_S)

    def start(self, environment: Mapping[str, str]) -> socket.socket:
        """Have a worker made; returns what its standard input and output are connected to."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [json.dumps(dict(environment)).encode()], [theirs.fileno()])
        return ours


def _import_ahead() -> None:
    for library in _LIBRARIES:
        import_module(library)
    for group in _PLUG_INS:
        for plug_in in entry_points(group=group):
            with suppress(ImportError):
                plug_in.load()


def _fork_on_demand(control: socket.socket) -> None:
    """Returns in each worker, and where the other end is closed."""
    children: set[int] = set()
    while True:
        message, channels, _, _ = socket.recv_fds(control, 65536, 1)
        # Not earlier: the id of one that has ended stays its own until then, so that killing it hits no other.
        children = {child for child in children if os.waitpid(child, os.WNOHANG) == (0, 0)}
        if not message:
            break
        assert threading.active_count() == 1, "a fork has no thread but the one that forks"
        child = os.fork()
        if child == 0:
            control.close()
            _live(channels[0], json.loads(message))
            return
        os.close(channels[0])
        children.add(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _live(channel: int, environment: Mapping[str, str]) -> None:
    import asyncio

    from tests.telemetry.worker import main

    for stream in (sys.stdin, sys.stdout):
        os.dup2(channel, stream.fileno())
    os.close(channel)
    os.environ.update(environment)
    asyncio.run(main())


if __name__ == "__main__":
    if "libraries" in sys.argv:
        _import_ahead()
    _fork_on_demand(socket.socket(fileno=int(sys.argv[1])))
