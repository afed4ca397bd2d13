"""The whole way as processes: Cosmos DB, Service Bus and Functions hosts, as a measurement needs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import psutil

from local.stack.environment import CONTAINERS, TOPIC, container_argument, settings_of
from local.stack.parts import ENTITIES, ROOT, Part

ELSEWHERE = "all others"
"""Under this name `ProcessorUse.shares` tells what the rest of the machine did."""

_LOOK_EVERY_S = 0.02
_HELD_AT_MOST_MS = 120_000
_HELD_RETRY_MS = 50


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What to measure on.

    Attributes:
        logs: The folder of the parts' logs.
        partitions: Physical partitions of the outbox's container, hence leases.
        ack_delay_ms: How late the broker acknowledges a send, in milliseconds.
        settings: Settings of the app beside those that point at the stage.
        host_options: Further options of the Functions hosts.
        subscribed: Whether the topic has the project's subscriptions. Without any, nothing piles up in the broker.
    """

    logs: Path
    partitions: int = 4
    ack_delay_ms: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    host_options: Sequence[str] = ()
    subscribed: bool = True


class Stage:
    """Running services, and hosts when they are asked for; an async context manager that leaves nothing behind.

    The parts are those of `python -m local up`. This takes them one by one, as a measurement starts its hosts at
    a moment of its own and needs another number of partitions than the stack's four.
    """

    def __init__(self, options: StageOptions) -> None:
        self._options = options
        self.settings: dict[str, str] = {}
        self.hosts: list[Part] = []
        self.cosmos: Part
        self.servicebus: Part
        self._services: list[Part] = []
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._options.logs.mkdir(parents=True, exist_ok=True)
        self._http = aiohttp.ClientSession()
        try:
            self.cosmos = await self._start_cosmos()
            self.servicebus = await self._start_servicebus()
        except BaseException:
            await self._stop()
            raise
        self.settings = {**settings_of(self.cosmos.details, self.servicebus.details), **self._options.settings}
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _start_cosmos(self) -> Part:
        arguments = ["--port", "0", "--partitions", str(self._options.partitions), "--edges", "off"]
        for name, partition_key, ttl in CONTAINERS:
            arguments += ["--container", container_argument(name, partition_key, ttl)]
        return await self._start_service("cosmos", arguments)

    async def _start_servicebus(self) -> Part:
        arguments = [
            "--port",
            "0",
            "--admin-port",
            "0",
            "--ack-delay-ms",
            str(self._options.ack_delay_ms),
            "--edges",
            "off",
        ]
        entities = ENTITIES
        if not self._options.subscribed:
            entities = self._options.logs / "entities.json"
            entities.write_text(_without_subscriptions())
        arguments += ["--entities", str(entities)]
        return await self._start_service("servicebus", arguments)

    async def _start_service(self, name: str, arguments: Sequence[str]) -> Part:
        part = await Part.start(name, arguments, log=self._options.logs / f"{name}.log")
        self._services.append(part)
        return part

    async def start_hosts(self, count: int, *options: str, **settings: str) -> list[Part]:
        """Start so many hosts, one after another, with settings and options beside the stage's own."""
        started = []
        for _ in range(count):
            label = f"functions-{len(self.hosts) + 1}"
            host = await Part.start(
                "functions",
                ["--app", str(ROOT), "--port", "0", *self._options.host_options, *options],
                log=self._options.logs / f"{label}.log",
                environment={**self.settings, **settings},
                label=label,
            )
            self.hosts.append(host)
            started.append(host)
        return started

    async def stop_hosts(self) -> None:
        """Stop every host; their leases are released."""
        hosts, self.hosts = self.hosts, []
        await asyncio.gather(*(host.stop() for host in hosts))

    async def _stop(self) -> None:
        await self.stop_hosts()
        services, self._services = self._services, []
        await asyncio.gather(*(service.stop() for service in services))
        await self._http.close()

    async def accepted(self) -> int:
        """How many messages the topic has accepted so far, duplicates not counted."""
        counts = await self._get(int(self.servicebus.details["admin_port"]), "/admin/entities")
        return int(counts[TOPIC]["accepted"])

    async def until_accepted(self, count: int, *, within_s: float) -> None:
        """Wait until the topic has accepted so many; TimeoutError when it has not in time."""
        async with asyncio.timeout(within_s):
            while await self.accepted() < count:
                await asyncio.sleep(_LOOK_EVERY_S)

    @asynccontextmanager
    async def feed_held(self) -> AsyncIterator[None]:
        """Nobody can read the change feed while the block lasts: what is written meanwhile becomes a backlog."""
        url = f"{self.cosmos.details['endpoint']}admin/faults"
        throttle = {
            "kind": "throttle",
            "match": {"container": "data", "operation": "read-feed"},
            "for_ms": _HELD_AT_MOST_MS,
            "retry_after_ms": _HELD_RETRY_MS,
        }
        async with self._http.post(url, json=throttle) as response:
            response.raise_for_status()
        try:
            yield
        finally:
            async with self._http.delete(url) as response:
                response.raise_for_status()

    async def until_balanced(self, *, within_s: float) -> None:
        """Wait until all leases are owned, each host having as many; TimeoutError when that takes longer."""
        share, rest = divmod(self._options.partitions, len(self.hosts))
        if rest:
            raise ValueError(f"{self._options.partitions} leases cannot be shared equally")
        async with asyncio.timeout(within_s):
            while any([len(await self.leases(host)) != share for host in self.hosts]):
                await asyncio.sleep(_LOOK_EVERY_S)

    async def leases(self, host: Part) -> list[str]:
        """The leases that a host owns."""
        status = await self._get(int(host.details["port"]), "/admin/status")
        return [lease for function in status["functions"] for lease in function["leases"]]

    async def until_delivered(self, host: Part, documents: int, *, within_s: float) -> None:
        """Wait until a host has handed over so many documents since it started; TimeoutError when not in time."""
        async with asyncio.timeout(within_s):
            while await self.delivered(host) < documents:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def delivered(self, host: Part) -> int:
        """How many documents a host has handed to invocations that succeeded."""
        status = await self._get(int(host.details["port"]), "/admin/status")
        return sum(int(function["documents_delivered"]) for function in status["functions"])

    async def _get(self, port: int, path: str) -> Any:
        async with self._http.get(f"http://127.0.0.1:{port}{path}") as response:
            return await response.json()


def _without_subscriptions() -> str:
    entities = json.loads(ENTITIES.read_text())
    for namespace in entities["UserConfig"]["Namespaces"]:
        for topic in namespace["Topics"]:
            topic["Subscriptions"] = []
    return json.dumps(entities)


class ProcessorUse:
    """How much of one core each process used between construction and `shares`."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """`processes`: process ids by the name they and their children are to be reported under."""
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._before = {name: _seconds(process) for name, process in self._processes.items()}
        self._machine_before = _machine_seconds()
        self._started = asyncio.get_running_loop().time()

    def seconds(self) -> dict[str, float]:
        """Processor seconds used by each since construction."""
        return {name: _seconds(process) - self._before[name] for name, process in self._processes.items()}

    def elapsed(self) -> float:
        """Seconds since construction."""
        return asyncio.get_running_loop().time() - self._started

    def shares(self) -> dict[str, float]:
        """Processor seconds as a part of one core's, 0 to 1 for a process of one thread.

        `ELSEWHERE` is what all other processes of the machine used: much of it, and the measurement was disturbed.
        """
        elapsed, seconds = self.elapsed(), self.seconds()
        elsewhere = max(0.0, _machine_seconds() - self._machine_before - sum(seconds.values()))
        return {name: used / elapsed for name, used in (seconds | {ELSEWHERE: elsewhere}).items()}


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _seconds(process: psutil.Process) -> float:
    """Of the process and those that it has started: a Functions host has a worker."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))
