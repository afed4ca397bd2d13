"""A worker in the host's own process, for tests that look into the app or replace parts of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from outbox_relay.emulators.functions.app import importable
from outbox_relay.emulators.functions.crashing import kill_this_process
from outbox_relay.emulators.functions.worker.interface import FunctionTimeout, IndexedFunction, Invocation
from outbox_relay.emulators.functions.worker.own import OwnRuntime


class InProcessWorker:
    """Runs the app in `app_directory`, with this process's environment.

    It cannot die alone: `kill` ends the host too. After a timeout the coroutine is cancelled, or its thread
    abandoned; other invocations and the app's state survive, while a worker process would be killed.
    """

    def __init__(self, app_directory: Path) -> None:
        self._app_directory = app_directory
        self._runtime = OwnRuntime()
        self._stack = ExitStack()

    async def start(self) -> Sequence[IndexedFunction]:
        self._stack.enter_context(importable(self._app_directory))
        try:
            return await self._runtime.load(self._app_directory)
        except BaseException:
            self._stack.close()
            raise

    async def invoke(self, invocation: Invocation, *, timeout_s: float | None) -> None:
        running = asyncio.ensure_future(self._runtime.invoke(invocation))
        try:
            done, _ = await asyncio.wait({running}, timeout=timeout_s)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if not done:
            running.cancel()
            await asyncio.wait({running})
            assert timeout_s is not None
            raise FunctionTimeout(timeout_s)
        running.result()

    def kill(self) -> None:
        kill_this_process()

    async def stop(self) -> None:
        self._stack.close()
