"""The host: one function app, its settings, and a listener for each function."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from outbox_relay.emulators.functions.app import TIMER_TRIGGER
from outbox_relay.emulators.functions.connections import Connections
from outbox_relay.emulators.functions.containers import open_containers
from outbox_relay.emulators.functions.crashing import Crash, Victim, kill_this_process
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.environment import applied, read_local_settings
from outbox_relay.emulators.functions.errors import HostError, UnableToStart
from outbox_relay.emulators.functions.executor import Executor
from outbox_relay.emulators.functions.feed import ChangeFeed
from outbox_relay.emulators.functions.host_json import HostConfiguration
from outbox_relay.emulators.functions.leases import Lease, LeaseStore
from outbox_relay.emulators.functions.listener import Listener, Source
from outbox_relay.emulators.functions.partition import PartitionProcessor
from outbox_relay.emulators.functions.schedules import time_zone
from outbox_relay.emulators.functions.settings import Settings
from outbox_relay.emulators.functions.singleton import LockTimings, Singleton
from outbox_relay.emulators.functions.status import FunctionStatus
from outbox_relay.emulators.functions.storage import Storage
from outbox_relay.emulators.functions.timer import KEY, TimerListener, TimerTrigger
from outbox_relay.emulators.functions.trigger import CosmosTrigger, LeaseOverrides
from outbox_relay.emulators.functions.worker.inprocess import InProcessWorker
from outbox_relay.emulators.functions.worker.interface import IndexedFunction, Worker
from outbox_relay.emulators.functions.worker.process import ORPHAN_LIMIT_S, ProcessWorker

DEFAULT_SHUTDOWN_TIMEOUT_S = 10.0
_NO_FUNCTIONS = (
    "No job functions found. Try making your job classes and methods public. If you're using binding extensions "
    "(e.g. Azure Storage, ServiceBus, Timers, etc.) make sure you've called the registration method for the "
    "extension(s) in your startup code (e.g. builder.AddAzureStorage(), builder.AddServiceBus(), "
    "builder.AddTimers(), etc.)."
)

logger = logging.getLogger(__name__)


class Host:
    """Runs the app in `app_directory`, with `settings` added to the process environment.

    With `separate_worker` the app runs in its own process, as in Azure, otherwise in this one; or where `worker`,
    which has not been started, runs it.

    `instance`, followed by the function's name, is the owner of leases; it is random if None, as on the real host.
    `lease_…_ms` override the trigger's times, `function_timeout_ms` host.json's functionTimeout, and `lock_ms` its
    times of a singleton. `stop` waits `shutdown_timeout_s` for running invocations. `edges` draws the
    behaviour that the platform leaves open.

    `storage` is a folder instead of the account of AzureWebJobsStorage: hosts that share it run each timer once.
    Without one a host runs its timers independently of others, and those with a stored status cannot start.

    With an `exported_log` an app that cannot be indexed does not end the host: as the real one, it stays up with
    no functions, and only that file has the reason. `worker_times_out` is the same for a worker that has not
    initialised within 10 s. A worker outlives a killed host for `orphan_limit_s` at most. `worker_replaced` is
    called with the exit code of a worker that has ended on its own, once there is another.
    """

    def __init__(
        self,
        app_directory: Path,
        settings: Mapping[str, str],
        *,
        instance: str | None = None,
        lease_acquire_ms: int | None = None,
        lease_renew_ms: int | None = None,
        lease_expiration_ms: int | None = None,
        function_timeout_ms: int | None = None,
        lock_ms: int | None = None,
        storage: Path | None = None,
        exported_log: Path | None = None,
        worker_times_out: bool = False,
        orphan_limit_s: float = ORPHAN_LIMIT_S,
        shutdown_timeout_s: float = DEFAULT_SHUTDOWN_TIMEOUT_S,
        edges: Edges | None = None,
        separate_worker: bool = False,
        worker: Worker | None = None,
        worker_replaced: Callable[[int], None] = lambda code: None,
    ) -> None:
        self.instance = instance or str(uuid.uuid4())
        self._app_directory = app_directory.resolve()
        self._settings = settings
        self._overrides = LeaseOverrides(lease_acquire_ms, lease_renew_ms, lease_expiration_ms)
        self._function_timeout_ms = function_timeout_ms
        self._lock_ms = lock_ms
        self._storage_folder = storage
        self._exported_log = exported_log
        self._worker_times_out = worker_times_out
        self._orphan_limit_s = orphan_limit_s
        self._worker_replaced = worker_replaced
        self._shutdown_timeout_s = shutdown_timeout_s
        self.crash = Crash(
            {
                Victim.MACHINE: self._kill_all,
                Victim.HOST: kill_this_process,
                Victim.WORKER: self._kill_worker,
            }
        )
        self.edges = edges or Edges()
        self._separate_worker = separate_worker
        self._worker = worker
        self._stopping = asyncio.Event()
        self._stack = AsyncExitStack()
        self._listeners: list[Listener | Singleton] = []
        self._statuses: list[FunctionStatus] = []

    async def start(self) -> None:
        """Load the app, take leases, and return once they are polled, or once it is clear that this takes longer.

        Timers run once this host has their locks.

        A function whose account does not answer, or whose containers are missing, does not keep the others from
        running; its listener starts in the background as soon as possible. Raises HostError if the app or its
        settings must be changed; then nothing runs.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the listeners, release the leases and restore the environment.

        A running invocation is finished but, as outside the platform's drain mode, not checkpointed: its documents
        are delivered again. A wait for a retry ends at once. Last, the worker is killed.
        """
        self._stopping.set()
        async with asyncio.TaskGroup() as group:
            for listener in self._listeners:
                group.create_task(listener.stop(within_s=self._shutdown_timeout_s))
        self._listeners.clear()
        if self._worker is not None:
            await self._worker.stop()
        await self._stack.aclose()

    def status(self) -> dict[str, Any]:
        """Return the instance's name, and the FunctionStatus of each function."""
        return {"instance": self.instance, "functions": [status.as_json() for status in self._statuses]}

    async def steal(self, token: str | None) -> list[dict[str, Any]]:
        """Steal leases from other running hosts, by token or all of them (None), as `Listener.steal` does.

        Returns each lease of that token with its function, its previous owner, and whether it was stolen.
        """
        thefts = [theft for listener in self._listeners for theft in await listener.steal(token)]
        return [
            {"function": theft.function, "lease": theft.token, "from": theft.victim, "stolen": theft.succeeded}
            for theft in thefts
        ]

    async def _start(self) -> None:
        configuration = HostConfiguration.from_directory(self._app_directory)
        if not configuration.has_extension_bundle:
            logger.warning("host.json has no extensionBundle: deployed, the app would have no cosmosDBTrigger")
        defaults = read_local_settings(self._app_directory)
        environment = self._stack.enter_context(applied(self._settings, defaults=defaults))
        settings = Settings(environment)
        self._worker = worker = self._worker or self._make_worker(environment)
        functions = await self._indexed(worker)
        logger.info("%d functions loaded", len(functions))
        if not functions:
            logger.warning(_NO_FUNCTIONS)
        for function in functions:
            if settings.disables(function.name):
                logger.info("Function 'Functions.%s' is disabled", function.name)
        functions = [function for function in functions if not settings.disables(function.name)]
        # TZ is an app setting in Azure; that of this machine says nothing.
        named = Settings({**defaults, **self._settings}).get("TZ")
        zone = time_zone(settings.get("WEBSITE_TIME_ZONE") or named)
        triggers = [
            TimerTrigger.from_binding(function.name, function.trigger, settings, zone)
            if function.trigger["type"] == TIMER_TRIGGER
            else CosmosTrigger.from_binding(function.name, function.trigger, settings, self._overrides)
            for function in functions
        ]
        connections = Connections(settings, self._stack, self._stopping)
        for function, trigger in zip(functions, triggers, strict=True):
            listener: Listener | Singleton
            if isinstance(trigger, TimerTrigger):
                listener = self._timer(worker, function, trigger, configuration)
                source = str(trigger.schedule)
            else:
                listener = self._listener(worker, function, trigger, configuration, connections)
                source = f"{trigger.database}/{trigger.container}"
            self._listeners.append(listener)
            if await listener.start():
                logger.info("Function %s listens to %s", function.name, source)
        logger.info("Job host started")

    async def _indexed(self, worker: Worker) -> Sequence[IndexedFunction]:
        if self._worker_times_out:
            self._export(
                "Initializing worker process failed\nSystem.TimeoutException: The operation has timed out."
            )
            self._export("Skipping worker channel restart for errored worker runtime: 'python'")
            return ()
        try:
            return await worker.start()
        except HostError as error:
            if self._exported_log is None:
                raise
            self._export(f"Worker failed to index functions\n{error}")
            return ()

    def _export(self, text: str) -> None:
        """Log what the real host's console does not show."""
        if self._exported_log is not None:
            with self._exported_log.open("a") as file:
                file.write(f"{text}\n")

    def _make_worker(self, environment: Mapping[str, str]) -> Worker:
        if self._separate_worker:
            return ProcessWorker(
                self._app_directory,
                environment,
                self.edges,
                orphan_limit_s=self._orphan_limit_s,
                replaced=self._worker_replaced,
            )
        return InProcessWorker(self._app_directory)

    def _kill_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()

    def _kill_all(self) -> None:
        self._kill_worker()
        kill_this_process()

    def _listener(
        self,
        worker: Worker,
        function: IndexedFunction,
        trigger: CosmosTrigger,
        configuration: HostConfiguration,
        connections: Connections,
    ) -> Listener:
        status = FunctionStatus(function.name)
        self._statuses.append(status)
        # Functions without a lease prefix share their leases, and compete for them, as in Azure.
        owner = f"{self.instance}-{function.name}"
        executor = Executor(
            function,
            worker=worker,
            reason=f"New changes on container {trigger.container}",
            timeout_s=self._timeout_s(configuration),
            stopping=self._stopping,
            status=status,
        )

        async def open_source() -> Source:
            if trigger.start_refused is not None:
                raise UnableToStart(trigger.start_refused)
            containers = await open_containers(function.name, trigger, connections)
            return Source(
                LeaseStore(
                    containers.leases,
                    prefix=containers.lease_prefix,
                    owner=owner,
                    partitioned_by_id=containers.leases_partitioned_by_id,
                    edges=self.edges,
                ),
                ChangeFeed(
                    containers.monitored,
                    start_from=trigger.start_from,
                    max_items=trigger.max_items_per_invocation,
                ),
            )

        def processor(lease: Lease, source: Source) -> PartitionProcessor:
            return PartitionProcessor(
                lease,
                store=source.store,
                feed=source.feed,
                executor=executor,
                rewrite_dates=configuration.rewrite_dates,
                poll_delay_s=trigger.feed_poll_delay_s,
                renew_interval_s=trigger.timings.renew_s,
                stopping=self._stopping,
                status=status,
                crash=self.crash,
                edges=self.edges,
            )

        return Listener(
            owner=owner,
            open_source=open_source,
            timings=trigger.timings,
            processor=processor,
            stopping=self._stopping,
            status=status,
            edges=self.edges,
        )

    def _timer(
        self,
        worker: Worker,
        function: IndexedFunction,
        trigger: TimerTrigger,
        configuration: HostConfiguration,
    ) -> Singleton:
        status = FunctionStatus(function.name)
        self._statuses.append(status)
        storage = self._storage
        timer = TimerListener(
            function.name,
            trigger,
            executor=Executor(
                function,
                worker=worker,
                reason="Timer fired",
                timeout_s=self._timeout_s(configuration),
                stopping=self._stopping,
                status=status,
            ),
            storage=storage,
            status=status,
            crash=self.crash,
        )

        def held(holding: bool) -> None:
            status.leases = [KEY] if holding else []

        return Singleton(
            timer,
            storage=storage,
            timings=configuration.locks if self._lock_ms is None else LockTimings.of(self._lock_ms),
            stopping=self._stopping,
            status=status,
            held=held,
        )

    @cached_property
    def _storage(self) -> Storage | None:
        if self._storage_folder is None:
            return None
        try:
            return Storage(self._storage_folder, self._app_directory)
        except OSError as error:
            raise HostError(f"the storage {self._storage_folder} cannot be used: {error}") from error

    def _timeout_s(self, configuration: HostConfiguration) -> float | None:
        if self._function_timeout_ms is None:
            return configuration.function_timeout_s
        return self._function_timeout_ms / 1_000
