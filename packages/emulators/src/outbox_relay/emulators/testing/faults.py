"""Faults, injected over an emulator's admin port."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import aiohttp

from outbox_relay.emulators.faults import InvalidFault
from outbox_relay.emulators.testing.signed_requests import Answer


class FaultClient:
    """A client of `/admin/faults` of the Cosmos DB or the Service Bus emulator.

    `endpoint` is the account's, or `http://127.0.0.1:<admin port>` of a Service Bus namespace.
    """

    def __init__(self, session: aiohttp.ClientSession, endpoint: str) -> None:
        self._session = session
        self._faults = endpoint.rstrip("/") + "/admin/faults"

    async def inject(self, kind: str, **plan: Any) -> int:
        """Inject a fault as `POST /admin/faults` takes it; returns its id. Raises InvalidFault."""
        answer = await self.send("POST", body={"kind": kind, **plan})
        if answer.status != 200:
            raise InvalidFault(answer.body["error"])
        return int(answer.body["id"])

    async def add(self, kind: str, operation: str = "any", container: str | None = None, **options: Any) -> int:
        """Inject a fault into requests to Cosmos DB, into one unless `count` or `for_ms` is given; returns its id.

        Raises InvalidFault.
        """
        limits = {} if options.keys() & {"count", "for_ms"} else {"count": 1}
        match = {"container": container, "operation": operation}
        return await self.inject(kind, match=match, **limits, **options)

    async def get(self, fault_id: int) -> dict[str, Any]:
        """Return the state of a fault: its plan, how often it was applied, and what is left of it."""
        return dict((await self.send("GET", f"/{fault_id}")).body)

    async def applied(self, fault_id: int) -> int:
        """Return the number of times a fault was applied."""
        return int((await self.get(fault_id))["applied"])

    async def remove(self, fault_id: int) -> dict[str, Any]:
        """End a fault; returns its last state."""
        return dict((await self.send("DELETE", f"/{fault_id}")).body)

    async def remove_all(self) -> None:
        """End all faults."""
        await self.send("DELETE")

    async def send(self, method: str, path: str = "", body: Any = None) -> Answer:
        """Send a request to `/admin/faults` and what follows it, with a JSON value or bytes as its body."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        async with self._session.request(method, self._faults + path, data=content) as response:
            return Answer(response.status, response.headers, await response.text())


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault, for tests of any kind: its methods block until the emulator has answered.

    Attributes:
        id: Its number, by which the emulator's admin port knows it.
    """

    id: int
    _client: FaultClient
    _wait: Callable[[Coroutine[Any, Any, Any]], Any]

    @property
    def applied(self) -> int:
        """Number of times it was applied: assert on it, as a fault that was never applied tests nothing."""
        return int(self._wait(self._client.applied(self.id)))

    def remove(self) -> None:
        """End it."""
        self._wait(self._client.remove(self.id))
