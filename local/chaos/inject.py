"""Makes a stack misbehave: each kind of fault, by the admin ports and by signals to the hosts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import aiohttp

from local.chaos.schedule import COSMOS_KINDS, Fault
from local.stack.parts import Part
from local.stack.supervisor import Stack

_ENTITY = "domain-events"
_SUBSCRIPTION = "domain-events/Subscriptions/all"
_OF_RECEIVERS = ("cut-receiver", "expire-locks")
_REQUEST_TIMEOUT_S = 10.0


class Injector:
    """Applies faults to a running stack. `applied` counts, by kind, those that were set off."""

    def __init__(self, stack: Stack, http: aiohttp.ClientSession, seed: int) -> None:
        self._stack = stack
        self._http = http
        self._rng = random.Random(f"hosts-{seed}")
        self.applied: Counter[str] = Counter()

    async def strike(self, fault: Fault) -> None:
        """Set off one fault."""
        if fault.kind in COSMOS_KINDS:
            await self._post(self._stack.cosmos, "faults", {"kind": fault.kind, **fault.options})
        elif fault.kind in ("kill-host", "stop-host", "steal-lease"):
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

    async def heal(self) -> None:
        """Call off whatever was set off and has not struck."""
        await self._request("DELETE", self._stack.cosmos.details["port"], "faults", None)
        await self._request("DELETE", self._stack.servicebus.details["admin_port"], "faults", None)

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
        if kind == "kill-host":
            host.signal_kill()
        elif kind == "stop-host":
            host.signal_stop()
        else:
            await self._post(host, "steal", {})

    async def _post_broker(self, path: str, content: dict[str, Any]) -> None:
        await self._request("POST", self._stack.servicebus.details["admin_port"], path, content)

    async def _post(self, part: Part, path: str, content: dict[str, Any]) -> None:
        try:
            await self._request("POST", part.details["port"], path, content)
        except (aiohttp.ClientError, TimeoutError):
            if part in self._stack.hosts:
                raise  # only a host may have been killed meanwhile

    async def _request(self, method: str, port: int, path: str, content: dict[str, Any] | None) -> Any:
        async with (
            asyncio.timeout(_REQUEST_TIMEOUT_S),
            self._http.request(method, f"http://127.0.0.1:{port}/admin/{path}", json=content) as response,
        ):
            answer = await response.json(content_type=None)
            if response.status >= 400:
                raise ValueError(f"{method} /admin/{path} {content}: {response.status} {answer}")
            return answer


async def replace_ended_hosts(stack: Stack) -> None:
    """Keep the number of hosts: each that ends, by whatever hand, is replaced by starting another."""
    while True:
        await stack.host_ended()
        await stack.start_host()
