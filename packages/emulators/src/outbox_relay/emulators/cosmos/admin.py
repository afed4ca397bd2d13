"""The emulator's own endpoints, under `/admin/`, which need no signature.

GET    /admin/counts       the number of items, by database and container
GET    /admin/edges        the seed, and how often each edge was met
POST   /admin/split        split a physical partition: {"database": …, "container": …, "range": "0"}
POST   /admin/merge        merge two neighbours: {"database": …, "container": …, "ranges": ["0", "1"]}
POST   /admin/faults       inject a fault: a FaultPlan as JSON
GET    /admin/faults       the pending faults, and how often each kind was applied
DELETE /admin/faults       end all faults
GET    /admin/faults/ID    one fault, pending or ended
DELETE /admin/faults/ID    end one fault
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.errors import CosmosError
from outbox_relay.emulators.cosmos.faults import Fault, FaultPlan, Faults
from outbox_relay.emulators.cosmos.messages import JSON, body_of
from outbox_relay.emulators.http_requests import whole_number

PATH = "/admin/"
_RESOURCES = (
    "There are GET /admin/counts and /admin/edges; POST /admin/split and /admin/merge; GET, POST and DELETE "
    "/admin/faults; GET and DELETE /admin/faults/ID."
)


class _Refusal(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Admin:
    """Answers requests under `/admin/`."""

    def __init__(self, account: Account, faults: Faults) -> None:
        self._account = account
        self._faults = faults

    async def answer(self, http: web.BaseRequest, path: str) -> web.Response:
        """200 with JSON; otherwise 400, 404 or 405 with `{"error": …}`."""
        try:
            return _json(200, self._resource(http.method, path.removeprefix(PATH), await body_of(http)))
        except (_Refusal, CosmosError) as refusal:
            return _json(refusal.status, {"error": str(refusal)})
        except RecursionError:
            return _json(400, {"error": "The request is nested too deeply."})

    def _resource(self, method: str, name: str, body: bytes) -> Any:
        if name == "counts":
            return _by_method(method, GET=self._account.counts)
        if name == "edges":
            return _by_method(method, GET=self._account.edges.as_json)
        if name == "split":
            return _by_method(method, POST=lambda: self._split(body))
        if name == "merge":
            return _by_method(method, POST=lambda: self._merge(body))
        if name == "faults":
            return _by_method(
                method, GET=self._faults.as_json, POST=lambda: self._add_fault(body), DELETE=self._end_faults
            )
        fault = self._fault(name)
        return _by_method(method, GET=lambda: self._faults.describe(fault), DELETE=lambda: self._end_fault(fault))

    def _split(self, body: bytes) -> dict[str, Any]:
        try:
            wanted = json.loads(body)
            return self._account.split(wanted["database"], wanted["container"], wanted["range"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _Refusal(400, 'Write {"database": …, "container": …, "range": "0"}.') from error

    def _merge(self, body: bytes) -> dict[str, Any]:
        try:
            wanted = json.loads(body)
            first, second = wanted["ranges"]
            return self._account.merge(wanted["database"], wanted["container"], [first, second])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _Refusal(400, 'Write {"database": …, "container": …, "ranges": ["0", "1"]}.') from error

    def _add_fault(self, body: bytes) -> dict[str, Any]:
        try:
            plan = FaultPlan.from_json(json.loads(body))
        except ValueError as error:
            raise _Refusal(400, str(error)) from error
        fault = self._faults.inject(plan)
        return {"id": fault.id, "applied": fault.applied}

    def _end_faults(self) -> dict[str, Any]:
        self._faults.end_all()
        return self._faults.as_json()

    def _end_fault(self, fault: Fault) -> dict[str, Any]:
        self._faults.end(fault)
        return self._faults.describe(fault)

    def _fault(self, name: str) -> Fault:
        collection, _, identifier = name.partition("/")
        number = whole_number(identifier)
        if collection != "faults" or number is None:
            raise _Refusal(404, _RESOURCES)
        fault = self._faults.get(number)
        if fault is None:
            raise _Refusal(404, f"There is no fault {identifier}.")
        return fault


def _by_method(method: str, **handlers: Callable[[], Any]) -> Any:
    if method not in handlers:
        raise _Refusal(405, _RESOURCES)
    return handlers[method]()


def _json(status: int, value: Any) -> web.Response:
    return web.Response(status=status, text=json.dumps(value), content_type=JSON)
