"""The whole stack: its parts in their order, each a process of its own, watched together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from local.stack.environment import CONTAINERS, container_argument, settings_of
from local.stack.parts import ENTITIES, ROOT, Part, PartFailed


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Ports and files of a stack; port 0 takes any free one.

    Attributes:
        cosmos_data: A file that keeps the documents; in memory when None.
        entities: The queues and topics, in the official emulator's Config.json format; None for the project's.
        app: The folder with function_app.py and host.json.
        settings: Settings of the app beside those that point at the stack.
        hosts: Functions hosts to start with the stack.
        servicebus_options, host_options: Further options of those parts.
        edges: The seed from which each part draws what the services leave open; None for the parts' own default.
    """

    cosmos_port: int = 0
    servicebus_port: int = 0
    servicebus_admin_port: int = 0
    functions_port: int = 0
    cosmos_data: Path | None = None
    entities: Path | None = None
    app: Path = ROOT
    logs: Path = Path(".local/logs")
    settings: Mapping[str, str] = field(default_factory=dict)
    hosts: int = 1
    servicebus_options: Sequence[str] = ()
    host_options: Sequence[str] = ()
    edges: int | None = None

    @property
    def edge_options(self) -> list[str]:
        """The option that every part takes for it."""
        return [] if self.edges is None else ["--edges", str(self.edges)]


class Stack:
    """A running stack; use it as an async context manager, so that no part is left behind.

    Attributes:
        settings: The environment of an app on this stack.
        cosmos, servicebus: The service parts.
        hosts: The Functions hosts that run.
        host_edges: The journal of edges that all hosts and their workers write, those that were killed included.
    """

    def __init__(self, options: StackOptions) -> None:
        self._options = options
        self.host_edges = options.logs / "functions.edges"
        self.settings: dict[str, str] = {}
        self.hosts: list[Part] = []
        self.cosmos: Part
        self.servicebus: Part
        self._services: list[Part] = []
        self._ended_hosts: list[Part] = []
        self._started_hosts = 0

    async def __aenter__(self) -> Self:
        self.host_edges.unlink(missing_ok=True)
        try:
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self._start_cosmos())
                starting.create_task(self._start_servicebus())
            self.settings = {
                **settings_of(self.cosmos.details, self.servicebus.details),
                **self._options.settings,
            }
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

    async def _start_cosmos(self) -> None:
        options = self._options
        arguments = ["--port", str(options.cosmos_port), *options.edge_options]
        for name, partition_key, ttl in CONTAINERS:
            arguments += ["--container", container_argument(name, partition_key, ttl)]
        if options.cosmos_data is not None:
            arguments += ["--data", str(options.cosmos_data)]
        self.cosmos = await Part.start("cosmos", arguments, log=options.logs / "cosmos.log")
        self._services.append(self.cosmos)

    async def _start_servicebus(self) -> None:
        options = self._options
        arguments = ["--port", str(options.servicebus_port), "--admin-port", str(options.servicebus_admin_port)]
        arguments += ["--entities", str(options.entities or ENTITIES)]
        self.servicebus = await Part.start(
            "servicebus",
            [*arguments, *options.edge_options, *options.servicebus_options],
            log=options.logs / "servicebus.log",
        )
        self._services.append(self.servicebus)

    async def start_host(self) -> Part:
        """Start one more Functions host on the app; the first takes the configured port, others a free one."""
        options = self._options
        self._started_hosts += 1
        label = f"functions-{self._started_hosts}"
        port = options.functions_port if not self.hosts else 0
        host = await Part.start(
            "functions",
            [
                *("--app", str(options.app), "--port", str(port), "--instance", label),
                *("--edges-journal", str(self.host_edges), *options.edge_options, *options.host_options),
            ],
            log=options.logs / f"{label}.log",
            environment=self.settings,
            label=label,
        )
        self.hosts.append(host)
        return host

    async def host_ended(self) -> Part:
        """Wait until a host ends by itself, or by somebody's hand; returns it, no longer among `hosts`."""
        waits = {asyncio.create_task(host.wait()): host for host in self.hosts}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        host = waits[next(iter(done))]
        self.hosts.remove(host)
        self._ended_hosts.append(host)
        return host

    async def watch(self) -> None:
        """Return never; a part that ends by itself is raised.

        Raises:
            PartFailed: Naming the part, its exit code and the end of its log.
        """
        parts = [*self._services, *self.hosts]
        waits = {asyncio.create_task(part.wait()): part for part in parts}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        ended = next(iter(done))
        raise waits[ended].failure(f"ended by itself with exit code {ended.result()}")

    async def stop(self) -> None:
        """Stop the hosts, then the services they use."""
        hosts, self.hosts = self.hosts, []
        services, self._services = self._services, []
        await asyncio.gather(*(host.stop() for host in hosts))
        # Their workers may have outlived them.
        for host in (*hosts, *self._ended_hosts):
            host.signal_kill_all()
        await asyncio.gather(*(service.stop() for service in services))


__all__ = ["PartFailed", "Stack", "StackOptions"]
