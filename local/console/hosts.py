"""The Functions hosts of a stack: what each says of the attempts that are under way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from local.stack.counts import admin_get
from local.stack.supervisor import Stack
from relay_operator.console.ports import Attempt

_TIMEOUT_S = 2.0
# A page that was withheld is read again every 13 seconds.
_WITHHELD_S = 60.0


class FunctionsHosts:
    """See `relay_operator.console.ports.Hosts`. A host that was killed, or is starting, says nothing."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._http: aiohttp.ClientSession | None = None

    async def attempts(self) -> Mapping[str, Attempt]:
        """See ports.Hosts."""
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        found: dict[str, Attempt] = {}
        for host in self._stack.hosts:
            try:
                status = await admin_get(self._http, host.details["port"], "status")
            except (aiohttp.ClientError, TimeoutError):
                continue
            for function in status["functions"]:
                found |= _attempts(function, time.time())
        return found

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
