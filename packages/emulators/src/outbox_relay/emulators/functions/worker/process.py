"""The host's side of a worker process: started, invoked, timed out, and started again when it dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from outbox_relay.emulators.functions.edges import Edge, Edges
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.worker import frames
from outbox_relay.emulators.functions.worker.interface import (
    FunctionTimeout,
    IndexedFunction,
    Invocation,
    InvocationFailed,
    WorkerDied,
)

# The folder of `outbox_relay`.
_ROOT = Path(__file__).resolve().parents[4]
_GONE_WITHIN_S = 5.0
ORPHAN_LIMIT_S = 1800.0
"""Seconds after which a worker without a host ends at the latest. The platform's was seen to live for longer."""

logger = logging.getLogger(__name__)

Died = Callable[["_Child"], None]


class ProcessWorker:
    """Runs the app in its own process, whose whole environment is `environment`.

    The invocations of a worker that dies fail at once, and it is replaced at once. A worker that exceeds
    functionTimeout is killed with all that it runs; the other invocations fail only at their own timeouts, as
    observed on host 4.1037. `own` ignores the platform's library if it is installed. A worker finishes
    its invocations without a host that was killed, for `orphan_limit_s` at most. `replaced` is called with the
    exit code of one that has ended on its own, once there is another.
    """

    def __init__(
        self,
        app_directory: Path,
        environment: Mapping[str, str],
        edges: Edges,
        *,
        own: bool = False,
        orphan_limit_s: float = ORPHAN_LIMIT_S,
        replaced: Callable[[int], None] = lambda code: None,
    ) -> None:
        self._app_directory = app_directory
        self._environment = environment
        self._edges = edges
        self._options = [*(["--own"] if own else []), "--orphan-limit-s", str(orphan_limit_s)]
        self._replaced = replaced
        self._child: _Child | None = None
        self._spawning = asyncio.Lock()
        self._stopping = False
        self._replacing: set[asyncio.Task[object]] = set()

    async def start(self) -> Sequence[IndexedFunction]:
        return (await self._living()).functions

    async def invoke(self, invocation: Invocation, *, timeout_s: float | None) -> None:
        try:
            child = await self._living()
        except HostError as error:
            raise WorkerDied(f"WorkerProcessExitException: no worker could be started: {error}") from error
        await child.invoke(invocation, timeout_s=timeout_s)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def stop(self) -> None:
        self._stopping = True
        async with self._spawning:
            if self._child is not None:
                self._child.kill()
                await self._child.gone()

    async def _living(self) -> _Child:
        async with self._spawning:
            if self._stopping:
                raise HostError("the host is stopping")
            if self._child is None or self._child.has_ended:
                self._child = await _Child.spawn(
                    self._app_directory, self._environment, self._edges, *self._options, died=self._died
                )
            return self._child

    def _died(self, child: _Child) -> None:
        if self._stopping or child is not self._child:
            return
        replacing: asyncio.Task[object] = asyncio.create_task(self._replace(child))
        self._replacing.add(replacing)
        replacing.add_done_callback(self._replacing.discard)

    async def _replace(self, child: _Child) -> None:
        try:
            await self._living()
        except HostError as error:
            logger.error("No other worker could be started: %s", error)
        else:
            if child.exit_code is not None:
                self._replaced(child.exit_code)


class _Child:
    """One worker process, from its start to its end."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        edges: Edges,
    ) -> None:
        self.functions: Sequence[IndexedFunction] = ()
        self.has_ended = False
        # Of one that has ended on its own.
        self.exit_code: int | None = None
        self._process = process
        self._reader = reader
        self._writer = writer
        self._edges = edges
        self._calls = itertools.count()
        self._pending: dict[int, asyncio.Future[None]] = {}
        self._killed_on_purpose = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def spawn(
        cls,
        app_directory: Path,
        environment: Mapping[str, str],
        edges: Edges,
        *options: str,
        died: Died,
    ) -> _Child:
        """Start one and wait until it has indexed the app. Raises HostError."""
        ours, theirs = socket.socketpair()
        journal = ["--journal", str(edges.journal)] if edges.journal else []
        path = os.pathsep.join(filter(None, (str(_ROOT), environment.get("PYTHONPATH"))))
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(
                    "-m",
                    "outbox_relay.emulators.functions.worker",
                    str(theirs.fileno()),
                    str(app_directory),
                    *options,
                    *journal,
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                env={**environment, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        child = cls(process, reader, writer, edges)
        child._tasks.append(asyncio.create_task(child._forward_output()))
        try:
            await child._await_functions()
        except BaseException:
            child.kill()
            await child.gone()
            raise
        child._tasks.append(asyncio.create_task(child._read_outcomes(died)))
        logger.info("Worker process %d runs the app", process.pid)
        return child

    async def _await_functions(self) -> None:
        frame = await frames.read(self._reader)
        if frame is None:
            code = await self._process.wait()
            raise HostError(f"the worker ended with exit code {code} before it had indexed the app")
        header, _ = frame
        if "error" in header:
            raise HostError(header["error"])
        self.functions = frames.functions_in(header)

    async def invoke(self, invocation: Invocation, *, timeout_s: float | None) -> None:
        """Invoke a function in the worker process. Raises WorkerDied if it ends."""
        if self.has_ended:
            raise WorkerDied("WorkerProcessExitException: the worker has ended")
        call = next(self._calls)
        outcome = self._pending[call] = asyncio.get_running_loop().create_future()
        frames.write(self._writer, frames.invocation_header(call, invocation), invocation.value)
        try:
            async with asyncio.timeout(timeout_s):
                await outcome
        except TimeoutError:
            assert timeout_s is not None
            self._kill_for_timeout()
            raise FunctionTimeout(timeout_s) from None
        finally:
            del self._pending[call]

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def gone(self) -> None:
        """Wait until the process has ended, and its output has been read."""
        self._killed_on_purpose = True
        self._writer.close()
        try:
            async with asyncio.timeout(_GONE_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            # A process that the app has started may still hold the worker's output open.
            logger.warning("Worker process %d did not end", self._process.pid)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _kill_for_timeout(self) -> None:
        if self._killed_on_purpose or self.has_ended:
            return
        self._edges.met(Edge.TIMEOUT_KILLED_WORKER)
        logger.error("A function exceeded its timeout: worker process %d is restarted", self._process.pid)
        self._killed_on_purpose = True
        self.has_ended = True
        self.kill()

    async def _read_outcomes(self, died: Died) -> None:
        while (frame := await frames.read(self._reader)) is not None:
            header, _ = frame
            outcome = self._pending.get(header["call"])
            if outcome is not None and not outcome.done():
                _settle(outcome, frames.failure_in(header))
        self.has_ended = True
        self._writer.close()
        if not self._killed_on_purpose:
            code = self.exit_code = await self._process.wait()
            self._edges.met(Edge.WORKER_KILLED)
            logger.error("Worker process %d ended with exit code %d", self._process.pid, code)
            for outcome in self._pending.values():
                if not outcome.done():
                    _settle(outcome, WorkerDied(f"WorkerProcessExitException: the worker exited with code {code}"))
        died(self)

    async def _forward_output(self) -> None:
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(65536):
            sys.stderr.write(chunk.decode(errors="replace"))
            sys.stderr.flush()


def _settle(outcome: asyncio.Future[None], failure: InvocationFailed | None) -> None:
    if failure is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(failure)
