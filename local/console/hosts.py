"""The processes of a stack: what the Functions hosts say of their attempts, and what has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp

from local.stack.counts import admin_get
from local.stack.environment import Source
from local.stack.parts import Part
from local.stack.supervisor import Stack
from local.stack.upkeep import Ended
from outbox_relay.operator.console.ports import Attempt
from relay.backends.findings import Finding
from relay.core.remedy import Remedy, Sentence

_TIMEOUT_S = 2.0
# A page that was withheld is read again every 13 seconds.
_WITHHELD_S = 60.0
_REPLAY = Remedy("replay", options=("--from", "1d"))
# How long an end is shown after the part was started again.
_NEWS_S = 60.0


class StackHosts:
    """See `outbox_relay.operator.console.ports.Hosts`. A host that was killed, or is starting, has no attempts."""

    def __init__(self, stack: Stack, function: str, wall: Callable[[], float] = time.time) -> None:
        """`function` is the name of the one that relays the stream."""
        self._stack = stack
        self._function = function
        self._wall = wall
        self._http: aiohttp.ClientSession | None = None

    async def attempts(self) -> Mapping[str, Attempt]:
        """See ports.Hosts. A worker of the SQL source does not report its attempts."""
        if self._stack.source is Source.SQL:
            return {}
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        found: dict[str, Attempt] = {}
        for host in self._stack.hosts:
            try:
                status = await admin_get(self._http, host.details["port"], "status")
            except (aiohttp.ClientError, TimeoutError):
                continue
            for function in status["functions"]:
                if function["name"] == self._function:
                    found |= _attempts(function, self._wall())
        return found

    async def obstacles(self) -> Sequence[Finding]:
        """See ports.Hosts. An end without a loss is not news for long."""
        now = self._wall()
        return [
            _finding(each)
            for each in self._stack.upkeep.ended.values()
            if each.loses is not None or each.restored_at is None or now - each.restored_at <= _NEWS_S
        ]

    def ended_at(self, owner: str, /) -> float | None:
        """See ports.Hosts."""
        return next((at for host, at in self._stack.ended_hosts.items() if _is_of(owner, host)), None)

    async def close(self) -> None:
        """Close every connection."""
        if self._http is not None:
            await self._http.close()


def _attempts(function: Mapping[str, Any], now: float) -> dict[str, Attempt]:
    """Return the attempts that a host reports for a function's leases."""
    withheld = {
        lease: Attempt(withheld=each["error"])
        for lease, each in function["withheld"].items()
        # Another host may have the lease since.
        if now - each["at"] <= _WITHHELD_S
    }
    retried = {
        lease: Attempt(attempt["number"], attempt["error"]) for lease, attempt in function["attempts"].items()
    }
    return withheld | retried


def _finding(ended: Ended) -> Finding:
    if ended.restored_at is None:
        return Finding.error(ended.text, "Wait: it is ready within seconds, or the stack ends and says why.")
    if ended.loses is None:
        return Finding.warning(ended.text, "Nothing is to be done.")
    if ended.name.startswith("servicebus"):
        return Finding.warning(ended.text, Sentence.of("To publish the events again, `{}`.", _REPLAY))
    return Finding.warning(ended.text, "Write large events that no consumer has received yet again.")


def _is_of(owner: str, host: Part) -> bool:
    """Return True if this owner of a lease or claim belongs to a host or worker.

    A lease is owned by the instance and its function, a claim by machine, process and instance.
    """
    if (relay := host.details.get("relay_pid")) is not None:
        return owner.split("/")[1:2] == [str(relay)]
    return owner.startswith(f"{host.name}-")
