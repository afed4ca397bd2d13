"""The side of Cosmos DB: its faults, those of the Functions hosts, and the container that writers commit to."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.chaos import edge_cases
from local.chaos.admin import AdminPorts, NotInjected
from local.chaos.bystander import AccountBystander
from local.chaos.history import Histories
from local.chaos.hosts import HostFaults, start_hosts
from local.chaos.partitions import PhysicalPartitions
from local.chaos.recordings import Recorded, of_account
from local.chaos.schedule import COSMOS_KINDS, HOST_KINDS, READ_KINDS, SILENCE_KINDS, Fault
from local.chaos.streams import Layout, Stream, container_of
from local.chaos.workload import Commit, write
from local.stack.environment import DATABASE
from local.stack.parts import Part
from local.stack.supervisor import Stack
from outbox_relay.emulators.functions.edges import Edge as FunctionsEdge
from outbox_relay.emulators.functions.edges import read_journal

_POLL_EVERY_S = 0.1
_MET_WITHIN_S = 15.0

_OUTAGES = {
    "feed-outage": (
        FunctionsEdge.LEASE_GIVEN_UP,
        {"kind": "unavailable", "match": {"operation": "read-feed"}, "for_ms": 15_000},
    ),
    "outage": (FunctionsEdge.LEASE_LEFT_TO_EXPIRE, {"kind": "unavailable", "for_ms": 15_000}),
}


# How much later than the function timeout an acknowledgement is: the host is not punctual.
_LATER_S = 2.0


class CosmosSide:
    """See `sources.SourceSide`. Faults of one container, or of one destination, hit any of them."""

    causes: Mapping[str, str] = edge_cases.COSMOS_CAUSES
    known = edge_cases.COSMOS_KNOWN
    parts: Sequence[Part]

    def __init__(
        self,
        stack: Stack,
        admin: AdminPorts,
        cosmos: CosmosClient,
        hosts: HostFaults,
        layout: Layout,
        seed: int,
        *,
        function_timeout_s: float,
    ) -> None:
        database = cosmos.get_database_client(DATABASE)
        self._settings = {each.stream: each for each in stack.streams}
        self._layout = layout
        self._database = database
        self._rng = random.Random(f"containers-{seed}")
        self._function_timeout_s = function_timeout_s
        self._leases = database.get_container_client("leases")
        self._stack = stack
        self._admin = admin
        self._hosts = hosts
        containers = [container_of(outbox) for outbox in layout.outboxes]
        self._bystanders = [AccountBystander(database.get_container_client(each)) for each in containers]
        self._partitions = [PhysicalPartitions(admin, stack.outbox, each) for each in containers]
        self.parts = [stack.outbox]

    async def start_hosts(self, hosts: int) -> None:
        """Start that many hosts."""
        await start_hosts(self._stack, hosts)

    async def write(self, commits: Iterator[Commit], history: Histories, *, pause_s: float) -> None:
        """Commit one writer's commits in order, repeating each until it is known to be committed."""
        await write(self._container_of, commits, history, pause_s=pause_s)

    def lasting(self, fault: Fault) -> Coroutine[Any, Any, None] | None:
        """Return the work of a fault that takes a while, or None for one that is injected by `at_once`."""
        if fault.kind == "withhold-page":
            until = partial(self._until_met, FunctionsEdge.PAGE_WITHHELD)
            return self._rng.choice(self._bystanders).withhold_page(until)
        if fault.kind == "time-out-function":
            return self._time_out(fault)
        if fault.kind in _OUTAGES:
            return self._outage(fault)
        if fault.kind in READ_KINDS:
            return self._rng.choice(self._bystanders).read_ahead()
        if fault.kind in HOST_KINDS:
            return self._hosts.inject(fault.kind, fault.options)
        return None

    async def at_once(self, fault: Fault) -> None:
        """Inject a fault by one request. Raises NotInjected."""
        if fault.kind in SILENCE_KINDS:
            content = {"kind": "silent", "match": self._silent(fault.kind), **fault.options}
            await self._admin.post(self._stack.outbox, "faults", content)
        elif fault.kind in COSMOS_KINDS:
            await self._admin.post(self._stack.outbox, "faults", {"kind": fault.kind, **fault.options})
        elif fault.kind == "split-partition":
            await self._rng.choice(self._partitions).split()
        else:
            await self._rng.choice(self._partitions).merge()

    def _silent(self, kind: str) -> dict[str, str]:
        """Return the requests that a silence concerns."""
        one = self._rng.choice(list(self._settings.values()))
        return {
            "silent-account": {},
            "silent-feed": {"container": one.in_cosmos.container, "operation": "read-feed"},
            "silent-leases": {"container": one.in_cosmos.lease_container},
            "silent-quarantine": {"container": one.in_cosmos.quarantine_container},
        }[kind]

    async def kill(self, process: str, victim: str) -> None:
        """Kill a host or worker by its name: `machine` with all that it has started, or `worker`."""
        await self._hosts.kill(process, victim)

    async def recorded(self, stream: Stream) -> Recorded:
        """Return the recorded changes of a stream's events since the stack began."""
        settings = self._settings[stream.name]
        others = [each.in_cosmos.lease_prefix for each in self._settings.values() if each is not settings]

        def is_of_stream(lease: str) -> bool:
            # The first stream has no prefix.
            return lease.startswith(settings.in_cosmos.lease_prefix) and not any(
                each.startswith(settings.in_cosmos.lease_prefix) and lease.startswith(each) for each in others
            )

        return of_account(
            self._stack.recordings["cosmos"],
            settings.in_cosmos.container,
            settings.in_cosmos.quarantine_container,
            is_of_stream,
        )

    async def met(self) -> Counter[str]:
        """Return the number of times each edge case was met.

        The hosts and workers, killed ones included, write theirs into a journal.
        """
        met = read_journal(self._stack.edge_journal)
        met.update((await self._admin.get(self._stack.outbox, "edges"))["edges"])
        met[edge_cases.FROZEN] += self._hosts.frozen
        return met

    async def quarantined(self, stream: Stream) -> dict[str, str]:
        """Return the reasons by the id of the quarantined document."""
        query = "SELECT c.documentId, c.reason FROM c WHERE c.type = 'quarantinedEvent'"
        name = self._settings[stream.name].in_cosmos.quarantine_container
        found = self._database.get_container_client(name).query_items(query)
        return {item["documentId"]: item["reason"] async for item in found}

    async def timeline(self, outbox: str) -> Mapping[str, Any] | None:
        """Return the stored timeline of an outbox's rules, in its stored form; None if there is none."""
        container = await self._database.get_container_client(container_of(outbox)).read()
        query = "SELECT * FROM c WHERE STARTSWITH(c.id, 'relay-rules.') AND ENDSWITH(c.id, @rid)"
        parameters: list[dict[str, object]] = [{"name": "@rid", "value": f".{container['_rid']}"}]
        found = [each async for each in self._leases.query_items(query, parameters=parameters)]
        return found[0] if found else None

    async def commit_times(self, outbox: str, since: float) -> Mapping[str, int]:
        """Return `_ts` by the ids of events, of those since then."""
        query = "SELECT c.id, c._ts FROM c WHERE c._ts >= @since"
        parameters: list[dict[str, object]] = [{"name": "@since", "value": int(since)}]
        found = self._database.get_container_client(container_of(outbox)).query_items(
            query, parameters=parameters, max_item_count=5000
        )
        return {item["id"]: item["_ts"] async for item in found}

    async def end_faults(self) -> None:
        """End the crashes for which a host still waits."""
        for host in list(self._stack.hosts):
            with suppress(NotInjected):
                await self._admin.delete(host, "crash")

    async def killed_workers(self) -> int:
        """Return the number of workers that their host has killed, because they took too long."""
        return read_journal(self._stack.edge_journal)[FunctionsEdge.TIMEOUT_KILLED_WORKER]

    async def owners(self) -> list[str]:
        """Return a line for each lease: its owner, and its position."""
        query = "SELECT c.id, c.Owner, c.ContinuationToken FROM c WHERE IS_DEFINED(c.LeaseToken)"
        return [
            f"lease {item['id']}: owner {item.get('Owner')}, at {item.get('ContinuationToken')}"
            async for item in self._leases.query_items(query)
        ]

    def _container_of(self, key: str) -> ContainerProxy:
        return self._database.get_container_client(container_of(self._layout.outbox_of(key)))

    async def _until_met(self, edge: FunctionsEdge, within_s: float = _MET_WITHIN_S) -> None:
        """Wait until hosts have met an edge case once more, for a limited time."""
        before = read_journal(self._stack.edge_journal)[edge]
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while read_journal(self._stack.edge_journal)[edge] == before:
                    await asyncio.sleep(_POLL_EVERY_S)

    async def _outage(self, fault: Fault) -> None:
        """Answer with 503 until a host gives up a lease, after one failed read, or can neither give it up."""
        edge, content = _OUTAGES[fault.kind]
        identifier = (await self._admin.post(self._stack.outbox, "faults", content))["id"]
        try:
            await self._until_met(edge)
        finally:
            await self._admin.delete(self._stack.outbox, f"faults/{identifier}")

    async def _time_out(self, fault: Fault) -> None:
        """Acknowledge a transfer later than the function timeout."""
        entity = self._rng.choice(self._layout.destinations).entity
        ms = round(1000 * (self._function_timeout_s + _LATER_S))
        await self._admin.post(
            self._stack.servicebus, "faults", {"kind": "delay-ack", "entity": entity, "ms": ms, **fault.options}
        )
        await self._until_met(FunctionsEdge.TIMEOUT_KILLED_WORKER, self._function_timeout_s + _MET_WITHIN_S)
