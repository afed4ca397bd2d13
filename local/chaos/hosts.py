"""Faults of the Functions hosts: killed alone, with their workers or without, frozen, stopped, robbed."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from urllib.parse import urlsplit

from azure.cosmos.aio import CosmosClient

from local.chaos.admin import AdminPorts, DidNotStrike
from local.stack.parts import Part, PartFailed
from local.stack.supervisor import Stack

VICTIMS = {"kill-host": "host", "kill-machine": "machine", "kill-worker": "worker"}

_RESTART_PAUSE_S = 0.5
_LOOK_EVERY_S = 0.05
_BUSY_WITHIN_S = 3.0
_HELD_FOR_S = 0.2
_LOCK_TTL_S = 30


class HostFaults:
    """Strikes the hosts of a stack.

    Attributes:
        frozen: How many hosts, and how many workers without a host, were frozen and went on.
    """

    def __init__(self, stack: Stack, admin: AdminPorts, seed: int, *, frozen_s: float) -> None:
        """`frozen_s` is how long a frozen host or worker stays so, in seconds."""
        self._stack = stack
        self._admin = admin
        self._rng = random.Random(f"hosts-{seed}")
        self._frozen_s = frozen_s
        self._frozen_hosts: set[Part] = set()
        self.frozen = 0

    async def strike(self, kind: str, options: dict[str, Any]) -> None:
        """Set off one fault; returns when it is over. Raises DidNotStrike."""
        # Those that are frozen answer nothing, and one that was struck before may still be on its way out.
        hosts = [host for host in self._stack.hosts if host not in self._frozen_hosts]
        if not hosts:
            raise DidNotStrike(f"{kind}: no host is up")
        if kind == "stop-host":
            self._rng.choice(hosts).signal_stop()
        elif kind == "steal-lease":
            await self._admin.post(self._rng.choice(hosts), "steal", {})
        else:
            await self._strike_busy(kind, options, await self._busy(hosts))

    async def _strike_busy(self, kind: str, options: dict[str, Any], host: Part) -> None:
        if kind in VICTIMS:
            await self._admin.post(host, "crash", {"at": options["at"], "kill": VICTIMS[kind]})
        elif kind == "freeze-host":
            await self._freeze(host)
        else:
            await self._freeze(host, then_kill=True)

    async def _busy(self, hosts: list[Part]) -> Part:
        """A host that is amid an invocation, or any where none is for a while: what is cut short is to matter."""
        try:
            async with asyncio.timeout(_BUSY_WITHIN_S):
                while True:
                    for host in self._rng.sample(hosts, len(hosts)):
                        (function,) = (await self._admin.get(host, "status"))["functions"]
                        if function["invoking"]:
                            return host
                    await asyncio.sleep(_LOOK_EVERY_S)
        except (TimeoutError, DidNotStrike):
            return self._rng.choice(hosts)

    async def _freeze(self, host: Part, *, then_kill: bool = False) -> None:
        """Stop host and worker for longer than their leases last; with `then_kill`, the worker alone goes on."""
        self._frozen_hosts.add(host)
        try:
            host.signal_freeze_all()
            if then_kill:
                await asyncio.sleep(_HELD_FOR_S)
                host.signal_kill()
            await asyncio.sleep(self._frozen_s)
        finally:
            host.signal_thaw_all()
            self._frozen_hosts.discard(host)
        self.frozen += 1


async def start_hosts(stack: Stack, hosts: int) -> None:
    """Start so many, the first of which finds what a host leaves that was killed as it created the leases: its
    lock. It has to wait until that expires, which is not long here.
    """
    settings = stack.settings
    async with CosmosClient.from_connection_string(settings["COSMOS"]) as account:
        database = account.get_database_client(settings["COSMOS_DATABASE"])
        data = await database.get_container_client(settings["COSMOS_CONTAINER"]).read()
        leases = database.get_container_client(settings["COSMOS_LEASE_CONTAINER"])
        prefix = f"{urlsplit(account.client_connection.url_connection).hostname}_{(await database.read())['_rid']}"
        lock = await leases.create_item({"id": f"{prefix}_{data['_rid']}.lock", "ttl": _LOCK_TTL_S})
        await stack.start_host()
        await leases.delete_item(lock["id"], partition_key=lock["id"])
    for _ in range(hosts - 1):
        await stack.start_host()


async def replace_ended_hosts(stack: Stack) -> None:
    """Keep the number of hosts: each that ends, by whatever hand, is replaced by starting another."""
    while True:
        await stack.host_ended()
        while True:
            try:
                await stack.start_host()
                break
            except PartFailed:
                # The fault that it met as it started is over the next time, or the time after.
                await asyncio.sleep(_RESTART_PAUSE_S)
