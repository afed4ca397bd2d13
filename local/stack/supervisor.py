"""The whole stack: its parts in order, each its own process, watched together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import aiohttp

from local.stack import destinations, outboxes
from local.stack.environment import Source, blob_settings, servicebus_settings
from local.stack.options import StackOptions
from local.stack.parts import DUPLICATE_WINDOW, ENTITIES, Part, PartFailed, emulator
from outbox_emulators.functions.status import UNABLE
from relay.config.settings import SERVICEBUS, Settings
from relay.config.streams import read_streams

_WORKER = "local.stack.worker"


class Stack:
    """A running stack; use it as an async context manager, so that every part is stopped.

    Attributes:
        settings: The environment of an app on this stack.
        outbox: Cosmos DB, or PostgreSQL.
        servicebus: Service Bus.
        blobs: Blob Storage; None if the options ask for none.
        recordings: Where Cosmos DB and Service Bus record what they do, if the options ask for it.
        hosts: The Functions hosts that run, or the workers of the SQL source.
        edge_journal: Where all hosts and workers, killed ones included, record the edge cases they met.
    """

    def __init__(self, options: StackOptions) -> None:
        self._options = options
        self.edge_journal = options.logs / "functions.edges"
        self.recordings = {part: options.recording(part) for part in ("cosmos", "servicebus")}
        self.settings: dict[str, str] = {}
        self.hosts: list[Part] = []
        self.outbox: Part
        self.servicebus: Part
        self.blobs: Part | None = None
        self._services: list[Part] = []
        self._namespaces: dict[str, Part] = {}
        self._ended_hosts: list[Part] = []
        self._started_hosts = 0
        self._hosts_changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.edge_journal.unlink(missing_ok=True)
        try:
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self._start_outbox())
                starting.create_task(self._start_servicebus())
                starting.create_task(self._start_blobs())
            self.settings = {
                **outboxes.settings(self.outbox, self._options),
                **servicebus_settings(self.servicebus.details),
                **({} if self.blobs is None else blob_settings(self.blobs.details)),
                **{name: str(part.details["connection_string"]) for name, part in self._namespaces.items()},
                **self._options.settings,
            }
            if self.source is Source.SQL:
                await outboxes.install(self.settings)
            elif len(self.streams) > 1:
                await destinations.create_containers(self.streams)
            for _ in range(self._options.hosts):
                await self.start_host()
        except BaseException as error:
            await self.stop()
            if isinstance(error, ExceptionGroup):
                raise error.exceptions[0] from None
            raise
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def streams(self) -> list[Settings]:
        """The settings of each stream of the app. Raises SettingsError."""
        return read_streams({**os.environ, **self.settings}, app=self._options.app)

    @property
    def administration(self) -> dict[str, str]:
        """The management endpoint of each namespace, by the variable that names it to an operator's command."""
        parts = {SERVICEBUS: self.servicebus, **self._namespaces}
        return {f"{name}_ADMIN": f"http://127.0.0.1:{each.details['admin_port']}" for name, each in parts.items()}

    @property
    def source(self) -> Source:
        """Where the events come from."""
        return self._options.source

    async def _start_outbox(self) -> None:
        self.outbox = await outboxes.start(self._options)
        self._services.append(self.outbox)

    async def _start_servicebus(self) -> None:
        options = self._options
        needed = destinations.namespaces(options)
        entities = needed.pop(SERVICEBUS) or options.entities
        self.servicebus = await emulator(
            "servicebus",
            *("--port", str(options.servicebus_port), "--admin-port", str(options.servicebus_admin_port)),
            *(() if entities else ("--duplicate-window", DUPLICATE_WINDOW)),
            *("--entities", str(entities or ENTITIES)),
            *(*options.edge_options, *options.servicebus_options, *options.record_options("servicebus")),
            log=options.logs / "servicebus.log",
        )
        self._services.append(self.servicebus)
        for name, path in needed.items():
            label = f"servicebus-{name.lower()}"
            part = await emulator(
                "servicebus",
                *("--port", "0", "--admin-port", "0", "--entities", str(path), *options.edge_options),
                log=options.logs / f"{label}.log",
                label=label,
            )
            self._namespaces[name] = part
            self._services.append(part)

    async def _start_blobs(self) -> None:
        options = self._options
        if options.blobs_port is not None:
            arguments = ["azurite", "--exit-with-stdin", "--port", str(options.blobs_port)]
            arguments += ["--faults"] if options.blob_faults else []
            self.blobs = await Part.start("azurite", "local", *arguments, log=options.logs / "azurite.log")
            self._services.append(self.blobs)

    async def start_host(self, **settings: str) -> Part:
        """Start one more Functions host on the app, or one more worker of the SQL source.

        The first host takes the configured port, others a free one. `settings` replace or add to the stack's.
        Its requests to Azure name it in the last word of their User-Agent.
        """
        self._started_hosts += 1
        starting = self._start_worker if self.source is Source.SQL else self._start_functions
        kind = "worker" if self.source is Source.SQL else "functions"
        label = f"{kind}-{self._started_hosts}"
        # https://learn.microsoft.com/python/api/azure-core/azure.core.pipeline.policies.useragentpolicy
        host = await starting(label, {**self.settings, "AZURE_HTTP_USER_AGENT": label, **settings})
        self.hosts.append(host)
        self._hosts_changed.set()
        return host

    async def replace_host(self) -> Part:
        """Kill the first host, if there is one, as a crash does, and start another; `watch` takes it as meant."""
        if self.hosts:
            host = self.hosts.pop(0)
            self._ended_hosts.append(host)
            self._kill(host)
        return await self.start_host()

    async def _start_worker(self, label: str, environment: Mapping[str, str]) -> Part:
        log = self._options.logs / f"{label}.log"
        ahead_s = self._options.rules_ahead_s
        arguments = () if ahead_s is None else (str(ahead_s),)
        return await Part.start(label, _WORKER, *arguments, log=log, environment=environment)

    async def _start_functions(self, label: str, environment: Mapping[str, str]) -> Part:
        options = self._options
        port = options.functions_port if not self.hosts else 0
        return await emulator(
            "functions",
            *("--app", str(options.app), "--port", str(port), "--instance", label),
            *("--edges-journal", str(self.edge_journal), *options.edge_options, *options.host_options),
            log=options.logs / f"{label}.log",
            label=label,
            environment=environment,
        )

    async def check_listening(self) -> None:
        """Raise PartFailed if the trigger of a Functions host could not start to listen."""
        if self.source is Source.SQL:
            return
        async with aiohttp.ClientSession() as session:
            for host in self.hosts:
                async with session.get(f"http://127.0.0.1:{host.details['port']}/admin/status") as response:
                    functions = (await response.json())["functions"]
                for error in (each["last_error"] or "" for each in functions):
                    if error.startswith(UNABLE):
                        raise host.failure(f"does not listen to the outbox ({error})")

    def kill_host(self) -> None:
        """Kill the first host; a Functions host's worker keeps running."""
        self._kill(self.hosts[0])

    def _kill(self, host: Part) -> None:
        if self.source is Source.SQL:
            host.kill_all()
        else:
            host.kill_alone()

    async def stop_hosts(self) -> None:
        """Stop every host; each releases its leases."""
        hosts, self.hosts = self.hosts, []
        await asyncio.gather(*(host.stop() for host in hosts))
        self._ended_hosts += hosts

    async def host_ended(self) -> Part:
        """Wait until a host ends for any reason; returns it, removed from `hosts`."""
        waits = {asyncio.create_task(host.wait()): host for host in self.hosts}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        host = waits[next(iter(done))]
        self._take_out(host)
        return host

    async def until_ended(self, host: Part) -> None:
        """Wait until this host ends for any reason, and remove it from `hosts`."""
        await host.wait()
        self._take_out(host)

    def _take_out(self, host: Part) -> None:
        self.hosts.remove(host)
        self._ended_hosts.append(host)

    async def watch(self) -> None:
        """Wait until a part ends unexpectedly, and raise that; never returns.

        Raises:
            PartFailed: Naming the part, its exit code and the end of its log.
        """
        while True:
            self._hosts_changed.clear()
            waits = {asyncio.create_task(part.wait()): part for part in (*self._services, *self.hosts)}
            changing = asyncio.create_task(self._hosts_changed.wait())
            try:
                await asyncio.wait({*waits, changing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*waits, changing):
                    task.cancel()
            for task, part in waits.items():
                if task.done() and not task.cancelled() and (part in self._services or part in self.hosts):
                    raise part.failure(f"ended unexpectedly with exit code {task.result()}")

    async def stop(self) -> None:
        """Stop the hosts, then the services they use."""
        await self.stop_hosts()
        # A worker can outlive its host.
        for host in self._ended_hosts:
            await host.kill()
        services, self._services = self._services, []
        await asyncio.gather(*(service.stop() for service in services))


__all__ = ["PartFailed", "Stack", "StackOptions"]
