"""The whole stack: its parts in order, each its own process, watched together."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from local.stack import destinations, outboxes
from local.stack.environment import Source, blob_settings, servicebus_settings
from local.stack.options import StackOptions
from local.stack.parts import Part, PartFailed, emulator
from local.stack.upkeep import Upkeep
from outbox_relay.emulators.functions.status import UNABLE
from relay.config.settings import FILE_VARIABLE, SERVICEBUS, Settings
from relay.config.streams import APP, read_file, read_streams
from relay.routes.file import FILE

_WORKER = "local.stack.worker"

_MESSAGES = "its messages, and its memory of duplicates,"


class Stack:
    """A running stack; use it as an async context manager, so that every part is stopped.

    Attributes:
        release: The folder of another release of this project, which the next hosts or workers run; None for this.
        settings: The environment of an app on this stack.
        outbox: Cosmos DB, or PostgreSQL.
        servicebus: Service Bus.
        namespaces: The Service Bus of each further namespace of relay.toml, by its setting.
        blobs: Blob Storage; None if the options ask for none.
        recordings: Where Cosmos DB and Service Bus record what they do, if the options ask for it.
        hosts: The Functions hosts that run, or the workers of the SQL source.
        upkeep: Remembers the parts that `watch` has started again.
        edge_journal: Where all hosts and workers, killed ones included, record the edge cases they met.
    """

    def __init__(self, options: StackOptions) -> None:
        self._options = options
        self.release: Path | None = None
        self.edge_journal = options.logs / "functions.edges"
        self.recordings = {part: options.recording(part) for part in ("cosmos", "servicebus")}
        self.settings: dict[str, str] = {}
        self.hosts: list[Part] = []
        self.outbox: Part
        self.servicebus: Part
        self.namespaces: dict[str, Part] = {}
        self.blobs: Part | None = None
        self._services: list[Part] = []
        self._ended_hosts: dict[Part, float] = {}
        self._started_hosts = 0
        self._hosts_changed = asyncio.Event()
        self.upkeep = Upkeep()

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
                **{name: str(part.details["connection_string"]) for name, part in self.namespaces.items()},
                **self._options.settings,
            }
            if self.source is Source.SQL:
                await outboxes.install(self.settings)
            else:
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
        parts = {SERVICEBUS: self.servicebus, **self.namespaces}
        return {f"{name}_ADMIN": f"http://127.0.0.1:{each.details['admin_port']}" for name, each in parts.items()}

    @property
    def operator_settings(self) -> dict[str, str]:
        """The settings of an operator's command on this stack.

        They name the relay.toml of the app, where the command would read another one.
        """
        path, _ = read_file({**os.environ, **self.settings}, self._options.app)
        elsewhere = path.exists() and path.resolve() != APP / FILE
        named = {FILE_VARIABLE: str(path.resolve())} if elsewhere else {}
        return {**self.settings, **self.administration, **named}

    @property
    def ended_hosts(self) -> Mapping[Part, float]:
        """The hosts and workers that have ended, or were killed: when, in seconds since 1970."""
        return self._ended_hosts

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
        self.servicebus = await emulator(
            "servicebus",
            *("--port", str(options.servicebus_port), "--admin-port", str(options.servicebus_admin_port)),
            *("--entities", str(needed.pop(SERVICEBUS))),
            *(*options.edge_options, *options.servicebus_options, *options.record_options("servicebus")),
            log=options.logs / "servicebus.log",
            loses=_MESSAGES,
        )
        self._services.append(self.servicebus)
        for name, path in needed.items():
            label = f"servicebus-{name.lower()}"
            part = await emulator(
                "servicebus",
                *("--port", "0", "--admin-port", "0", "--entities", str(path), *options.edge_options),
                log=options.logs / f"{label}.log",
                label=label,
                loses=_MESSAGES,
            )
            self.namespaces[name] = part
            self._services.append(part)

    async def _start_blobs(self) -> None:
        options = self._options
        if options.blobs_port is not None:
            arguments = ["azurite", "--exit-with-stdin", "--port", str(options.blobs_port)]
            arguments += ["--faults"] if options.blob_faults else []
            self.blobs = await Part.start(
                "azurite",
                "local",
                *arguments,
                log=options.logs / "azurite.log",
                loses="the bodies of large events",
            )
            self._services.append(self.blobs)

    async def start_host(self, instead_of: Part | None = None, **settings: str) -> Part:
        """Start one more Functions host on the app, or one more worker of the SQL source.

        The first host takes the configured port, others a free one, but one `instead_of` another its port.
        `settings` replace or add to the stack's. Its requests to Azure name it in the last word of their
        User-Agent.
        """
        self._started_hosts += 1
        label = f"{self._kind_of_host}-{self._started_hosts}"
        # https://learn.microsoft.com/python/api/azure-core/azure.core.pipeline.policies.useragentpolicy
        environment = {**self.settings, "AZURE_HTTP_USER_AGENT": label, **settings}
        if self.source is Source.SQL:
            host = await self._start_worker(label, environment)
        else:
            port = self._options.functions_port if not self.hosts else 0
            host = await self._start_functions(
                label, environment, port if instead_of is None else instead_of.details["port"]
            )
        self.hosts.append(host)
        self._hosts_changed.set()
        return host

    @property
    def _kind_of_host(self) -> str:
        return "worker" if self.source is Source.SQL else "functions"

    async def replace_host(self) -> Part:
        """Kill the first host, if there is one, as a crash does, and start another; `watch` takes it as meant."""
        if not self.hosts:
            return await self.start_host()
        host = self.hosts[0]
        self._take_out(host)
        self._kill(host)
        return await self._start_instead_of(host)

    async def _start_instead_of(self, host: Part) -> Part:
        """Start a host in place of one that has ended, or was killed: its port is free once it has ended."""
        await host.wait()
        return await self.start_host(host)

    async def _start_worker(self, label: str, environment: Mapping[str, str]) -> Part:
        log = self._options.logs / f"{label}.log"
        ahead_s = self._options.rules_ahead_s
        arguments = () if ahead_s is None else (str(ahead_s),)
        return await Part.start(label, _WORKER, *arguments, log=log, environment=environment, release=self.release)

    async def _start_functions(self, label: str, environment: Mapping[str, str], port: int) -> Part:
        options = self._options
        return await emulator(
            "functions",
            *("--app", str(self.release or options.app), "--port", str(port), "--instance", label),
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
        self._ended_hosts |= dict.fromkeys(hosts, time.time())

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
        self._ended_hosts[host] = time.time()

    async def watch(self) -> None:
        """Start each part again that ends unexpectedly; returns never.

        Raises:
            PartFailed: A part has ended again and again, and is given up.
        """
        try:
            async with asyncio.TaskGroup() as keeping:
                for part in self._services:
                    keeping.create_task(self.upkeep.keep(part))
                kept: set[Part] = set()
                while True:
                    self._hosts_changed.clear()
                    for host in (each for each in self.hosts if each not in kept):
                        keeping.create_task(self._keep_host(host))
                    kept.update(self.hosts)
                    await self._hosts_changed.wait()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _keep_host(self, host: Part) -> None:
        """Start another host when this one ends, unless it was taken out before: then the end is meant."""
        await self.upkeep.end_of(host)
        if host in self.hosts:
            self._take_out(host)
            # The worker of a Functions host lives on for a while, as in Azure.
            self._kill(host)
            await self.upkeep.start_again(host, partial(self._start_instead_of, host), self._kind_of_host)

    async def stop(self) -> None:
        """Stop the hosts, then the services they use."""
        await self.stop_hosts()
        # A worker can outlive its host.
        for host in self._ended_hosts:
            await host.kill()
        services, self._services = self._services, []
        await asyncio.gather(*(service.stop() for service in services))


__all__ = ["PartFailed", "Stack", "StackOptions"]
