"""Faults over HTTP: under `/admin/faults`, and `/admin/restart`."""

from __future__ import annotations

from aiohttp import web

from outbox_relay.emulators.faults import Fault, InvalidFault
from outbox_relay.emulators.http_requests import json_object, problem, whole_number
from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.fault_injection import FaultInjector
from outbox_relay.emulators.servicebus.fault_plans import FaultPlan


class FaultApi:
    """The handlers; `Admin` turns NotFound into 404."""

    def __init__(self, broker: Broker) -> None:
        self._faults = broker.faults
        self._injector = FaultInjector(broker)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/admin/faults", self.show_all),
            web.post("/admin/faults", self.inject),
            web.delete("/admin/faults", self.end_all),
            web.get(r"/admin/faults/{id:\d+}", self.show),
            web.delete(r"/admin/faults/{id:\d+}", self.end),
            web.post("/admin/restart", self.restart),
        ]

    async def show_all(self, request: web.Request) -> web.Response:
        """Answer {"pending", "applied"}: the pending faults, and how often each kind was applied."""
        return web.json_response(self._faults.as_json())

    async def inject(self, request: web.Request) -> web.Response:
        """Take {"kind", "entity", "count", "for_ms", …}: see FaultPlan.from_json. Answers {"id", "applied"}."""
        try:
            plan = FaultPlan.from_json(await json_object(request))
        except InvalidFault as error:
            return problem(400, str(error))
        fault = self._injector.inject(plan)
        return web.json_response({"id": fault.id, "applied": fault.applied})

    async def show(self, request: web.Request) -> web.Response:
        """Answer one fault, pending or ended."""
        fault = self._find(request)
        return _unknown(request) if fault is None else web.json_response(self._faults.describe(fault))

    async def end(self, request: web.Request) -> web.Response:
        """End a fault."""
        fault = self._find(request)
        if fault is None:
            return _unknown(request)
        self._faults.end(fault)
        return web.json_response(self._faults.describe(fault))

    async def end_all(self, request: web.Request) -> web.Response:
        """End all faults."""
        self._faults.end_all()
        return web.json_response(self._faults.as_json())

    async def restart(self, request: web.Request) -> web.Response:
        """Take {"keep": true | false, "for_ms": n}: see FaultInjector.restart. Answers once it is done."""
        body = await json_object(request)
        keep, for_ms = body.get("keep", True), body.get("for_ms", 0)
        if not isinstance(keep, bool) or isinstance(for_ms, bool) or not isinstance(for_ms, int) or for_ms < 0:
            return problem(400, "keep must be true or false, and for_ms a whole number of milliseconds")
        self._injector.restart(keep=keep, for_ms=for_ms)
        return web.json_response({"kept": keep})

    def _find(self, request: web.Request) -> Fault[FaultPlan] | None:
        number = whole_number(request.match_info["id"])
        return None if number is None else self._faults.get(number)


def _unknown(request: web.Request) -> web.Response:
    return problem(404, f"there is no fault {request.match_info['id']}")
