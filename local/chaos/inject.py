"""Makes a stack misbehave: each kind of fault, by the admin ports and by signals to the hosts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import aiohttp

from local.chaos.history import History
from local.chaos.schedule import COSMOS_KINDS, Fault
from local.functions.edges import read_journal
from local.stack.parts import Part, PartFailed
from local.stack.supervisor import Stack

_ENTITY = "domain-events"
_SUBSCRIPTION = "domain-events/Subscriptions/all"
_OF_RECEIVERS = ("cut-receiver", "expire-locks")
_REQUEST_TIMEOUT_S = 10.0
_RESTART_PAUSE_S = 0.5
_ASK_AGAIN_S = 0.1


class DidNotStrike(Exception):
    """A fault could not be set off, as another one stood in its way; the message says which and why."""


class Injector:
    """Applies faults to a running stack.

    Attributes:
        applied: By kind, how many were set off.
        struck: By kind, how many requests, transfers and connections those at the wire have hit.
    """

    def __init__(self, stack: Stack, http: aiohttp.ClientSession, seed: int) -> None:
        self._stack = stack
        self._http = http
        self._rng = random.Random(f"hosts-{seed}")
        self.applied: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()

    async def strike(self, fault: Fault) -> None:
        """Set off one fault.

        Raises:
            DidNotStrike: An earlier fault stood in its way.
        """
        if fault.kind in COSMOS_KINDS:
            await self._post(self._stack.cosmos, "faults", {"kind": fault.kind, **fault.options})
        elif fault.kind in ("kill-host", "kill-worker", "stop-host", "steal-lease"):
            await self._strike_host(fault.kind)
        elif fault.kind == "restart-broker":
            await self._post_broker("restart", {"keep": True})
        elif fault.kind == "time-out-function":
            # The acknowledgement comes later than the host lets a function run.
            await self._post_broker("faults", {"kind": "delay-ack", "entity": _ENTITY, **fault.options})
        else:
            entity = _SUBSCRIPTION if fault.kind in _OF_RECEIVERS else _ENTITY
            await self._post_broker("faults", {"kind": fault.kind, "entity": entity, **fault.options})
        self.applied[fault.kind] += 1

    async def until_struck(self, history: History) -> None:
        """Wait until every fault has struck for the last time, or there is nothing left to relay."""
        while not history.complete and any(told["pending"] for told in await self._told()):
            await asyncio.sleep(_ASK_AGAIN_S)

    async def heal(self) -> None:
        """Call off whatever is pending; `struck` is told from now on."""
        for told in await self._told():
            self.struck.update(told["applied"])
        for port in self._ports():
            await self._request("DELETE", port, "faults", None)

    async def edges(self) -> Counter[str]:
        """How often each edge was met, by all parts, hosts that were killed included.

        A part that does not count them has none.
        """
        met = read_journal(self._stack.host_edges)
        for port in self._ports():
            async with self._http.get(f"http://127.0.0.1:{port}/admin/edges") as response:
                if response.status == 200:
                    met.update((await response.json())["edges"])
        return met

    def _ports(self) -> tuple[int, int]:
        return self._stack.cosmos.details["port"], self._stack.servicebus.details["admin_port"]

    async def _told(self) -> list[dict[str, Any]]:
        return [await self._request("GET", port, "faults", None) for port in self._ports()]

    async def waiting(self) -> int:
        """How many messages the subscription still holds."""
        counts = await self._request("GET", self._stack.servicebus.details["admin_port"], "entities", None)
        held = counts[_SUBSCRIPTION]
        return int(held["active"]) + int(held["locked"]) + int(held["deferred"]) + int(held["dead_letter"])

    async def _strike_host(self, kind: str) -> None:
        # A host that was struck before may still be on its way out, or its successor on its way in.
        hosts = list(self._stack.hosts)
        if not hosts:
            return
        host = self._rng.choice(hosts)
        if kind == "kill-host" and self._rng.randrange(2):
            host.signal_kill_all()
        elif kind == "kill-host":
            host.signal_kill()  # its worker finishes what it has
        elif kind == "kill-worker":
            await self._post(host, "crash", {"kill": "worker"})
        elif kind == "stop-host":
            host.signal_stop()
        else:
            await self._post(host, "steal", {})

    async def _post_broker(self, path: str, content: dict[str, Any]) -> None:
        await self._request("POST", self._stack.servicebus.details["admin_port"], path, content)

    async def _post(self, part: Part, path: str, content: dict[str, Any]) -> None:
        await self._request("POST", part.details["port"], path, content)

    async def _request(self, method: str, port: int, path: str, content: dict[str, Any] | None) -> Any:
        what = f"{method} /admin/{path} {content or ''}"
        try:
            async with (
                asyncio.timeout(_REQUEST_TIMEOUT_S),
                self._http.request(method, f"http://127.0.0.1:{port}/admin/{path}", json=content) as response,
            ):
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DidNotStrike(f"{what}: {type(error).__name__}") from error
        if response.status >= 500:
            raise DidNotStrike(f"{what}: {response.status} {answer}")
        if response.status >= 400:
            raise ValueError(f"{what}: {response.status} {answer}")
        return answer


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
