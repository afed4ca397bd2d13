"""The whole system as processes: a stack with the hosts, partitions and delays that a measurement needs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from bench.contention import machine_seconds
from bench.outbox import CosmosOutbox, Outbox
from bench.sql_outbox import SqlOutbox
from local.stack.environment import TOPIC, Source
from local.stack.parts import ENTITIES, Part
from local.stack.supervisor import Stack, StackOptions

OTHERS = "all others"
"""The name under which `ProcessorUse.shares` reports the other processes of the machine."""

_POLL_EVERY_S = 0.02
_HELD_AT_MOST_MS = 120_000
_HELD_RETRY_MS = 50


@asynccontextmanager
async def running_testbed(
    logs: Path,
    *,
    source: Source = Source.COSMOS,
    partitions: int = 4,
    ack_delay_ms: int = 0,
    settings: Mapping[str, str] | None = None,
    host_options: Sequence[str] = (),
    subscribed: bool = True,
    topics: Sequence[str] = (TOPIC,),
) -> AsyncIterator[Testbed]:
    """A running testbed without hosts.

    Args:
        logs: The folder of the parts' logs.
        source: Where the events come from.
        partitions: Physical partitions of the outbox's container, hence leases; or shards of the SQL feed.
        ack_delay_ms: How late the broker acknowledges a send, in milliseconds.
        settings: Settings of the app in addition to those that point at the testbed.
        host_options: Further options of the Functions hosts.
        subscribed: Whether the topic has the project's subscriptions. Without any, no messages pile up.
        topics: The topics that the app sends to, where it has no subscriptions; one stream sends to each of them.
    """
    entities = ENTITIES
    if not subscribed:
        entities = _entities_without_subscriptions(logs, topics)
    options = StackOptions(
        source=source,
        shards=partitions,
        logs=logs,
        hosts=0,
        entities=entities,
        settings=settings or {},
        cosmos_options=("--partitions", str(partitions)),
        servicebus_options=("--ack-delay-ms", str(ack_delay_ms)),
        host_options=host_options,
        edges="off",
    )
    async with Stack(options) as stack, aiohttp.ClientSession() as http:
        yield Testbed(stack, http, partitions, topics)


class Testbed:
    """A stack, and what a measurement asks of its parts."""

    def __init__(self, stack: Stack, http: aiohttp.ClientSession, partitions: int, topics: Sequence[str]) -> None:
        self.stack = stack
        self._http = http
        self._partitions = partitions
        self._topics = topics

    def outbox(self) -> CosmosOutbox | SqlOutbox:
        """Return the outbox, to be opened by whoever writes to it."""
        settings = self.stack.settings
        if self.stack.source is Source.SQL:
            return SqlOutbox(settings["SQL"], self._partitions)
        return CosmosOutbox(settings["COSMOS"])

    async def accepted(self) -> int:
        """Return the number of messages that the topics have accepted so far, without duplicates."""
        counts = await self._get(int(self.stack.servicebus.details["admin_port"]), "/admin/entities")
        return sum(int(counts[topic]["accepted"]) for topic in self._topics)

    async def until_accepted(self, count: int, *, within_s: float) -> None:
        """Wait until the topics have accepted that many; TimeoutError if it has not in time."""
        async with asyncio.timeout(within_s):
            while await self.accepted() < count:
                await asyncio.sleep(_POLL_EVERY_S)

    async def write_backlog(self, outbox: Outbox, documents: Sequence[dict[str, Any]]) -> None:
        """Write documents of which none is read before all of them are written.

        SQL's are written in one transaction; for Cosmos DB's, reads of the change feed are blocked.
        """
        if self.stack.source is Source.SQL:
            await outbox.fill(documents)
            return
        async with self._feed_held():
            await outbox.fill(documents)

    @asynccontextmanager
    async def _feed_held(self) -> AsyncIterator[None]:
        url = f"{self.stack.outbox.details['endpoint']}admin/faults"
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
        """Wait until all leases are owned and every host has equally many of each stream; TimeoutError if not."""
        hosts = self.stack.hosts
        share, rest = divmod(self._partitions, len(hosts))
        if rest:
            raise ValueError(f"{self._partitions} leases cannot be shared equally by {len(hosts)} hosts")
        async with asyncio.timeout(within_s):
            wanted = [share] * len(self._topics)
            while any([await self._leases(host) != wanted for host in hosts]):
                await asyncio.sleep(_POLL_EVERY_S)

    async def _leases(self, host: Part) -> list[int]:
        """Of each stream."""
        status = await self._get(int(host.details["port"]), "/admin/status")
        # A timer has the one that lets it run.
        return [len(each["leases"]) for each in status["functions"] if not each["name"].startswith("relay_age")]

    async def _get(self, port: int, path: str) -> Any:
        async with self._http.get(f"http://127.0.0.1:{port}{path}") as response:
            return await response.json()


def _entities_without_subscriptions(folder: Path, topics: Sequence[str]) -> Path:
    entities = json.loads(ENTITIES.read_text())
    (namespace,) = entities["UserConfig"]["Namespaces"]
    (like,) = (each for each in namespace["Topics"] if each["Name"] == TOPIC)
    namespace["Topics"] = [{**like, "Name": topic, "Subscriptions": []} for topic in topics]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "entities.json"
    path.write_text(json.dumps(entities))
    return path


class ProcessorUse:
    """How much of one core each process has used since construction."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """Watch `processes`: process ids by the name under which they and their children are reported."""
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._before = {name: processor_seconds(process) for name, process in self._processes.items()}
        self._machine_before = machine_seconds()
        self._started = asyncio.get_running_loop().time()

    def shares(self) -> dict[str, float]:
        """Return the processor seconds per second: 0 to 1 for a process with one thread.

        `OTHERS` is what all other processes of the machine used. If that is much, the measurement was disturbed.
        """
        elapsed = asyncio.get_running_loop().time() - self._started
        used = {name: processor_seconds(process) - self._before[name] for name, process in self._processes.items()}
        others = max(0.0, machine_seconds() - self._machine_before - sum(used.values()))
        return {name: seconds / elapsed for name, seconds in (used | {OTHERS: others}).items()}


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor seconds of the process and its descendants, as a Functions host has a worker.

    Of this process, returns its own alone.
    """
    descendants = [] if process.pid == os.getpid() else process.children(recursive=True)
    times = [each.cpu_times() for each in (process, *descendants)]
    return float(sum(each.user + each.system for each in times))
