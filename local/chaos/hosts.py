"""Faults of the Functions hosts: killed, with or without their workers; frozen; stopped; their leases stolen."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from local.chaos.admin import AdminPorts, NotInjected
from local.chaos.history import Histories
from local.stack.parts import Part, PartFailed
from local.stack.supervisor import Stack
from verification.journal.entries import Frozen, Resumed

_VICTIMS = {"kill-host": "host", "kill-machine": "machine", "kill-worker": "worker"}

_RESTART_PAUSE_S = 0.5
_POLL_EVERY_S = 0.05
_BUSY_WITHIN_S = 3.0
_FROZEN_BEFORE_KILL_S = 0.2
_LOCK_TTL_S = 30


class HostFaults:
    """Injects faults into the hosts of a stack.

    Attributes:
        frozen: Number of times a host, or a worker without its host, was frozen and resumed.
    """

    def __init__(self, stack: Stack, admin: AdminPorts, history: Histories, seed: int, *, frozen_s: float) -> None:
        """`frozen_s` is how long a host or worker stays frozen, in seconds."""
        self._stack = stack
        self._admin = admin
        self._history = history
        self._rng = random.Random(f"hosts-{seed}")
        self._frozen_s = frozen_s
        self._frozen_hosts: set[Part] = set()
        self.frozen = 0

    async def inject(self, kind: str, options: dict[str, Any]) -> None:
        """Inject one fault; returns when it is over. Raises NotInjected."""
        # A frozen host does not answer.
        hosts = [host for host in self._stack.hosts if host not in self._frozen_hosts]
        if not hosts:
            raise NotInjected(f"{kind}: no host is up")
        if kind == "stop-host":
            self._rng.choice(hosts).terminate()
        elif kind == "steal-lease":
            await self._admin.post(self._rng.choice(hosts), "steal", {})
        else:
            await self._inject_into(await self._busy(hosts), kind, options)

    async def kill(self, name: str, victim: str) -> None:
        """Kill a host and its worker (`machine`), or its worker alone (`worker`). Raises NotInjected."""
        host = next((each for each in self._stack.hosts if each.name == name), None)
        if host is None:
            raise NotInjected(f"{name} is not up")
        if victim == "machine":
            host.kill_all()
        else:
            await self._admin.post(host, "crash", {"at": None, "kill": victim})

    async def _inject_into(self, host: Part, kind: str, options: dict[str, Any]) -> None:
        if kind in _VICTIMS:
            await self._admin.post(host, "crash", {"at": options["at"], "kill": _VICTIMS[kind]})
        elif kind == "freeze-host":
            await self._freeze(host)
        else:
            await self._freeze(host, then_kill=True)

    async def _busy(self, hosts: list[Part]) -> Part:
        """Return a host within an invocation, so that the fault interrupts one.

        Returns any host if none is for a while.
        """
        try:
            async with asyncio.timeout(_BUSY_WITHIN_S):
                while True:
                    for host in self._rng.sample(hosts, len(hosts)):
                        functions = (await self._admin.get(host, "status"))["functions"]
                        if any(each["invoking"] for each in functions if _relays(each["name"])):
                            return host
                    await asyncio.sleep(_POLL_EVERY_S)
        except (TimeoutError, NotInjected):
            return self._rng.choice(hosts)

    async def _freeze(self, host: Part, *, then_kill: bool = False) -> None:
        """Freeze host and worker for longer than their leases last; with `then_kill`, only the worker resumes."""
        if host in self._frozen_hosts:
            raise NotInjected(f"{host.name} was frozen meanwhile")
        self._frozen_hosts.add(host)
        try:
            host.signal_all(signal.SIGSTOP)
            self._history.befell(host.name, Frozen)
            if then_kill:
                await asyncio.sleep(_FROZEN_BEFORE_KILL_S)
                host.kill_alone()
            await asyncio.sleep(self._frozen_s)
        finally:
            host.signal_all(signal.SIGCONT)
            self._history.befell(host.name, Resumed)
            self._frozen_hosts.discard(host)
        self.frozen += 1


def _relays(function: str) -> bool:
    """Return True if a function publishes events of a stream."""
    return function.startswith("relay") and not function.startswith("relay_age")


async def start_hosts(stack: Stack, hosts: int) -> None:
    """Start that many hosts.

    The first finds the lock of a host that was killed while it created the leases, and waits until it expires.
    """
    settings = stack.settings
    async with CosmosClient.from_connection_string(settings["COSMOS"]) as account:
        database = account.get_database_client(settings["COSMOS_DATABASE"])
        data = await database.get_container_client(settings["COSMOS_CONTAINER"]).read()
        leases = database.get_container_client(settings["COSMOS_LEASE_CONTAINER"])
        prefix = f"{urlsplit(account.client_connection.url_connection).hostname}_{(await database.read())['_rid']}"
        lock = await leases.create_item({"id": f"{prefix}_{data['_rid']}.lock", "ttl": _LOCK_TTL_S})
        await stack.start_host()
        # On a busy machine it has expired.
        with suppress(CosmosResourceNotFoundError):
            await leases.delete_item(lock["id"], partition_key=lock["id"])
    for _ in range(hosts - 1):
        await stack.start_host()


async def replace_hosts(stack: Stack, hosts: Sequence[Part], wanted: int) -> None:
    """Ask processes to stop, as a deployment does, and wait until that many others run in all.

    Processes that end have to be replaced by `replace_ended_hosts`. A frozen one ends when it resumes.
    """
    for host in hosts:
        host.terminate()
    while any(host in stack.hosts for host in hosts) or len(stack.hosts) < wanted:
        await asyncio.sleep(_POLL_EVERY_S)


async def replace_ended_hosts(stack: Stack, ended: Callable[[str, bool], None]) -> None:
    """Start another host whenever one ends, whichever others are still starting.

    `ended` is called with the name of each that ends, and whether it was killed.
    """
    async with asyncio.TaskGroup() as places:
        for host in list(stack.hosts):
            places.create_task(_keep_up(stack, host, ended))


async def _keep_up(stack: Stack, host: Part, ended: Callable[[str, bool], None]) -> None:
    while True:
        await stack.until_ended(host)
        ended(host.name, host.killed)
        while True:
            try:
                host = await stack.start_host()
                break
            except PartFailed:
                # A fault prevented the start; it will be over soon.
                await asyncio.sleep(_RESTART_PAUSE_S)
