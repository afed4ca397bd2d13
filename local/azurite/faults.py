"""Faults of Blob Storage: what becomes of the next writes of blobs.

{"kind": "refuse-blob", "status": 503, "count": 3}
{"kind": "drop-blob", "count": 1}
{"kind": "silent-blobs", "applies": true, "for_ms": 5000}
{"kind": "withhold-answer", "for_ms": 20000}

They are injected at `/admin/faults`, as into the emulators (`outbox_relay.emulators.faults`).
Reads are not affected.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiohttp import web

from local.azurite.proxy import CODES, Passing, Proxy
from outbox_relay.emulators import faults
from outbox_relay.emulators.faults import InvalidFault
from outbox_relay.emulators.properties import Problems, Reader


class Kind(StrEnum):
    """The fate of a write."""

    REFUSE = "refuse-blob"
    """Answered with `status`, not applied."""
    DROP = "drop-blob"
    """The connection is closed without an answer, the write is not applied."""
    DROP_AFTER = "drop-after-blob"
    """The write is applied, then the connection closed without an answer."""
    SILENT = "silent-blobs"
    """The write is accepted and never answered, not even after the fault; applied or not."""
    WITHHOLD = "withhold-answer"
    """One write is applied, and its answer withheld until the fault ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A fault as it is asked for: `count` or `for_ms` is set.

    `status` goes with a refusal, and `applies` (whether the blob is written all the same) with silence.
    """

    kind: Kind
    count: int | None
    for_ms: int | None
    status: int = 503
    applies: bool = False

    @classmethod
    def from_json(cls, body: object) -> Plan:
        """Read the body of `POST /admin/faults`. Raises InvalidFault."""
        problems: Problems = []
        reader = Reader(body, "", problems)
        kind = reader.choice("kind", Kind, None)
        count, for_ms = reader.limit("count"), reader.limit("for_ms")
        status, applies = reader.integer("status", 503, min(CODES), max(CODES)), reader.boolean("applies")
        reader.done()
        if count is None and for_ms is None:
            problems.append("count or for_ms is missing: a fault must end")
        if status not in CODES:
            problems.append(f"status must be one of {', '.join(map(str, CODES))}")
        if problems or kind is None:
            raise InvalidFault("; ".join(problems))
        return cls(kind, count, for_ms, status, applies)

    def as_json(self) -> Mapping[str, Any]:
        """Return what was asked for, defaults included."""
        options = {"status": self.status} if self.kind is Kind.REFUSE else {}
        if self.kind is Kind.SILENT:
            options["applies"] = self.applies
        return {"kind": self.kind, "count": self.count, "for_ms": self.for_ms, **options}


@dataclass(slots=True)
class _Withheld:
    """The answer to a write that a client waits for, or has waited for."""

    passing: Passing
    answered: bool = False

    def as_json(self) -> dict[str, Any]:
        request = self.passing.request
        # azure-core adds AZURE_HTTP_USER_AGENT at the end, by which the stack names its hosts.
        by = request.headers.get("User-Agent", "").rpartition(" ")[2]
        # The request has no connection any more once it is answered.
        left = not self.answered and self.passing.client_left
        return {"by": by, "path": request.path, "answered": self.answered, "client_left": left}


class FaultyBlobs:
    """An Azurite behind a proxy that injects faults into its writes. Use it with `async with`.

    Attributes:
        port: The proxy's, on 127.0.0.1.
    """

    def __init__(self, upstream: str, port: int = 0) -> None:
        """`upstream` is Azurite's address: scheme, host and port."""
        self._faults = faults.Faults[Plan](lambda: time.monotonic_ns() // 1_000_000)
        self._withheld: dict[int, _Withheld] = {}
        self._withholds = False
        routes = [
            web.get("/admin/faults", self._list),
            web.post("/admin/faults", self._inject),
            web.get(r"/admin/faults/{id:\d+}", self._show_or_end),
            web.delete(r"/admin/faults/{id:\d+}", self._show_or_end),
        ]
        self._proxy = Proxy(upstream, self._handle, port=port, routes=routes)

    @property
    def port(self) -> int:
        return self._proxy.port

    async def __aenter__(self) -> FaultyBlobs:
        await self._proxy.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._faults.end_all()
        await self._proxy.__aexit__(*error)

    async def _handle(self, passing: Passing) -> web.StreamResponse:
        fault = self._faults.apply(self._is_free) if passing.request.method == "PUT" else None
        if fault is None:
            return await passing.answer()
        match fault.plan.kind:
            case Kind.REFUSE:
                return await passing.refuse(fault.plan.status)
            case Kind.DROP:
                return passing.reset()
            case Kind.DROP_AFTER:
                await passing.answer()
                return passing.reset()
            case Kind.SILENT:
                if fault.plan.applies:
                    await passing.answer()
                await passing.hold()
                return passing.reset()
            case Kind.WITHHOLD:
                return await self._withhold(passing, fault)

    def _is_free(self, plan: Plan) -> bool:
        """Return True if a fault of this plan takes a write now."""
        return plan.kind is not Kind.WITHHOLD or not self._withholds

    async def _withhold(self, passing: Passing, fault: faults.Fault[Plan]) -> web.StreamResponse:
        self._withholds = True
        try:
            answer = await passing.answer()
            if answer.status >= 400:
                return answer
            held = self._withheld[fault.id] = _Withheld(passing)
            await passing.hold(until=lambda: fault.ended)
            self._faults.end(fault)
        finally:
            self._withholds = False
        if passing.client_left:
            return passing.reset()
        held.answered = True
        return answer

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(self._faults.as_json())

    async def _inject(self, request: web.Request) -> web.Response:
        try:
            plan = Plan.from_json(await request.json())
        except RecursionError:
            return web.json_response({"error": "the body is nested too deep"}, status=400)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"id": self._faults.inject(plan).id})

    async def _show_or_end(self, request: web.Request) -> web.Response:
        fault = self._faults.get(int(request.match_info["id"]))
        if fault is None:
            return web.json_response({"error": "there is no such fault"}, status=404)
        if request.method == "DELETE":
            self._faults.end(fault)
        held = self._withheld.get(fault.id)
        withheld = None if held is None else held.as_json()
        return web.json_response({**self._faults.describe(fault), "withheld": withheld})
