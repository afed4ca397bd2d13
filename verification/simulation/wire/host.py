"""A host of the wire's world, the emulator's, in a process of its own, and its worker in another.

The worker loads the app and outlives its host's death, as `outbox_relay.emulators.functions.worker.process` has
it, except that there is no pipe between the two: what the host asks for is ready in the worker at once, and the
other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from azure.core.exceptions import AzureError

from outbox_relay.emulators.functions import host
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.worker.interface import (
    FunctionTimeout,
    IndexedFunction,
    Invocation,
    WorkerDied,
)
from outbox_relay.emulators.functions.worker.own import OwnRuntime
from verification.simulation.wire.services import APP, Services
from verification.simulation.world import Process, World

T = TypeVar("T")

_DIED = "WorkerProcessExitException: the worker has ended"


class Host:
    """A Functions host and its worker."""

    def __init__(self, services: Services, name: str) -> None:
        world = services.world
        self.process = world.process(name)
        edges = Edges(world.entropy.randrange(1 << 32))
        settings = services.settings()
        self.worker = SimulatedWorker(world, self.process, APP, settings)
        self._host = host.Host(APP, settings, instance=name, edges=edges, worker=self.worker)
        self.process.start(self._host.start())

    @property
    def works(self) -> bool:
        """Neither killed nor frozen."""
        return self.process.is_alive and not self.process.is_frozen

    def steal(self, number: int) -> None:
        """Take a lease from whoever has it."""
        self.process.start(self._steal(number))

    async def _steal(self, number: int) -> None:
        # As the balancer, it tries again at another time.
        with contextlib.suppress(AzureError):
            await self._host.steal(str(number % 4))


class SimulatedWorker:
    """An `emulators.functions.worker.interface.Worker` in processes of its own, one after the other."""

    def __init__(self, world: World, host: Process, app: Path, environment: Mapping[str, str]) -> None:
        self._world = world
        self._host = host
        self._app = app
        self._environment = environment
        self._started = 0
        self._child = self._spawn()
        host.on_death(self._orphan)

    @property
    def process(self) -> Process:
        """The process that runs the app now."""
        return self._child.process

    async def start(self) -> Sequence[IndexedFunction]:
        return await self._child.functions()

    async def invoke(self, invocation: Invocation, *, timeout_s: float | None) -> None:
        child = self._child
        await child.functions()
        try:
            async with asyncio.timeout(timeout_s):
                await child.invoke(invocation)
        except TimeoutError:
            assert timeout_s is not None
            child.process.kill()
            raise FunctionTimeout(timeout_s) from None

    def kill(self) -> None:
        self._child.process.kill()

    async def stop(self) -> None:
        self.kill()

    def _spawn(self) -> _Child:
        self._started += 1
        child = _Child(self._world, f"{self._host.name}/{self._started}", self._app, self._environment)
        child.process.on_death(self._replace)
        return child

    def _replace(self) -> None:
        if self._host.is_alive:
            self._child = self._spawn()

    def _orphan(self) -> None:
        self._child.end_when_idle()


class _Child:
    """One worker process."""

    def __init__(self, world: World, name: str, app: Path, environment: Mapping[str, str]) -> None:
        self.process = world.process(name)
        self._world = world
        self._runtime = OwnRuntime()
        # What is asked of it, and the futures of those who ask, which belong to the host.
        self._asked: dict[asyncio.Future[Any], None] = {}
        self._is_orphan = False
        self._running = 0
        self.process.on_death(self._died)
        self._loading = self.process.loop.create_future()
        self.process.start(self._load(app, environment))

    async def functions(self) -> Sequence[IndexedFunction]:
        """Return the functions of the app, once it is loaded; for the host. Raises WorkerDied."""
        functions: Sequence[IndexedFunction] = await self._ask(self._loaded())
        return functions

    async def invoke(self, invocation: Invocation) -> None:
        """Call a function; for the host. Raises InvocationFailed."""
        await self._ask(self._runtime.invoke(invocation))

    def end_when_idle(self) -> None:
        """End once nothing runs: the host is gone."""
        self._is_orphan = True
        if not self._running and self.process.is_alive:
            self.process.kill()

    async def _load(self, app: Path, environment: Mapping[str, str]) -> None:
        # All processes of a universe have the same settings.
        os.environ.update(environment)
        self._loading.set_result(await self._runtime.load(app))

    async def _loaded(self) -> Sequence[IndexedFunction]:
        return await asyncio.shield(self._loading)

    async def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        answer: asyncio.Future[T] = self._world.running.loop.create_future()
        if not self.process.is_alive:
            work.close()
            raise WorkerDied(_DIED)
        self._asked[answer] = None
        self.process.loop.call_soon(self._begin, work, answer)
        return await answer

    def _begin(self, work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
        self._running += 1
        task = self.process.loop.create_task(work)
        task.add_done_callback(lambda done: self._ended(done, answer))

    def _ended(self, done: asyncio.Task[Any], answer: asyncio.Future[Any]) -> None:
        self._running -= 1
        self._asked.pop(answer, None)
        error = done.exception()
        answer.get_loop().call_soon(_settle, answer, None if error else done.result(), error)
        if self._is_orphan and not self._running:
            self.process.kill()

    def _died(self) -> None:
        for answer in self._asked:
            answer.get_loop().call_soon(_settle, answer, None, WorkerDied(_DIED))
        self._asked.clear()


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
