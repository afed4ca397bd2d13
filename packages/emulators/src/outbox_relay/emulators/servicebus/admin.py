"""The admin port: readiness, counts, edges, refusals and faults, under `/health` and `/admin`.

All other paths are those of the management API, which clients expect at the root. So are these where a request has
the header `Authorization`, which the service's clients send: an entity may be named `health`, or `admin/x`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from outbox_relay.emulators.access import Access
from outbox_relay.emulators.http_requests import json_object, problem, refuse_unreadable, whole_number
from outbox_relay.emulators.servicebus.administration.api import ManagementApi
from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.ends import Inlet, Outlet, Refusal
from outbox_relay.emulators.servicebus.entity_types import Status
from outbox_relay.emulators.servicebus.errors import NotFound
from outbox_relay.emulators.servicebus.fault_api import FaultApi
from outbox_relay.emulators.servicebus.message_store import Counts
from outbox_relay.emulators.servicebus.session_queue import SessionQueue

DEFAULT_CONDITION = "amqp:not-allowed"

# How many messages that wait are shown, and how much of the body of each.
_WAITING = 20
_BODY_BYTES = 16 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Admin:
    """The handlers of the admin port."""

    def __init__(self, broker: Broker, access: Access) -> None:
        self._broker = broker
        self._access = access

    def application(self, more: Iterable[web.RouteDef] = ()) -> web.Application:
        """Make the application, with more routes than its own."""
        management = ManagementApi(self._broker)
        app = web.Application(
            middlewares=[self._access.middleware(), refuse_unreadable, _errors, _authorized_by(management)]
        )
        app.add_routes(
            [
                web.get("/health", self.health),
                web.get("/admin/entities", self.entities),
                web.get("/admin/entities/{name:.+}/sessions", self.sessions),
                web.get("/admin/entities/{name:.+}/messages", self.messages),
                web.get("/admin/entities/{name:.+}/waiting", self.waiting),
                web.post("/admin/entities/{name:.+}/status", self.set_status),
                web.post("/admin/refuse", self.refuse),
                web.delete("/admin/refuse", self.stop_refusing),
                web.get("/admin/edges", self.edges),
                *FaultApi(self._broker).routes(),
                web.route("*", "/admin/{rest:.*}", self.unknown),
                *more,
                *management.routes(),
            ]
        )
        return app

    async def health(self, request: web.Request) -> web.Response:
        """Answer 200 once the broker serves: this port is opened last."""
        return web.json_response({"status": "healthy"})

    async def unknown(self, request: web.Request) -> web.Response:
        """Answer 404 to what is left under `/admin`, so that it does not reach the management API."""
        return problem(404, f"there is no {request.method} {request.path}")

    async def entities(self, request: web.Request) -> web.Response:
        """Answer counts by entity. Subscriptions are listed with their topics, by path."""
        namespace = self._broker.namespace
        found: dict[str, Any] = {}
        for queue in namespace.queues.values():
            status = {"status": queue.inlet.status.value}
            found[queue.inlet.name] = _sent(queue.inlet) | _held(queue.outlet) | status
        for topic in namespace.topics.values():
            scheduled = {"scheduled": topic.scheduled, "status": topic.inlet.status.value}
            found[topic.inlet.name] = _sent(topic.inlet) | scheduled
            for subscription in topic.subscriptions:
                outlet = subscription.outlet
                found[outlet.path] = _held(outlet) | {"status": outlet.status.value}
        return web.json_response(found)

    async def edges(self, request: web.Request) -> web.Response:
        """Answer {"seed", "edges"}: how often each edge was met."""
        return web.json_response(self._broker.edges.as_object())

    async def sessions(self, request: web.Request) -> web.Response:
        """Answer counts by session of a queue or subscription."""
        queue = self._broker.namespace.outlet(request.match_info["name"]).messages
        if not isinstance(queue, SessionQueue):
            return problem(409, "the entity does not require sessions")
        counts = queue.session_counts()
        return web.json_response(
            {name: _counts(each) | {"session_locked": locked} for name, (each, locked) in counts.items()}
        )

    async def messages(self, request: web.Request) -> web.Response:
        """Answer {"change", "messages"}: what became of the latest messages of a queue or subscription.

        `?after=N` leaves out those that did not change after change N, `?session=ID` those of other sessions.
        """
        journal = self._broker.namespace.outlet(request.match_info["name"]).messages.journal
        after = whole_number(request.query.get("after", "0"))
        if after is None:
            return problem(400, "after must be the number of a change, as an earlier answer had it")
        found = journal.after(after, request.query.get("session"))
        return web.json_response({"change": journal.change, "messages": [story.as_object() for story in found]})

    async def waiting(self, request: web.Request) -> web.Response:
        """Answer {"messages"}: those that have waited longest in a queue or subscription. Locks none.

        Each has what `messages` says of it, and `encoded`: the message in AMQP, with the beginning of its body, in
        Base64.
        """
        found = self._broker.namespace.outlet(request.match_info["name"]).messages.waiting(_WAITING)
        messages = [
            {**story.as_object(), "encoded": b64encode(entry.beginning(_BODY_BYTES)).decode()}
            for story, entry in found
        ]
        return web.json_response({"messages": messages})

    async def set_status(self, request: web.Request) -> web.Response:
        """Take {"status": "Active" | "SendDisabled" | "ReceiveDisabled" | "Disabled"}; detach affected links."""
        body = await json_object(request)
        try:
            status = Status(str(body.get("status")))
        except ValueError:
            return problem(400, f"status must be one of {', '.join(each.value for each in Status)}")
        self._broker.set_status(request.match_info["name"], status)
        return web.json_response({"status": status.value})

    async def refuse(self, request: web.Request) -> web.Response:
        """Take {"entity", "message_id", "condition"}: transfers that hold this id are refused."""
        body = await json_object(request)
        if not isinstance(body.get("entity"), str) or not isinstance(body.get("message_id"), str):
            return problem(400, "entity and message_id must be given, as strings")
        refusal = Refusal(body["message_id"], str(body.get("condition", DEFAULT_CONDITION)))
        self._broker.namespace.destination(body["entity"]).inlet.refusals.append(refusal)
        return web.json_response({"refusing": refusal.message_id, "condition": refusal.condition})

    async def stop_refusing(self, request: web.Request) -> web.Response:
        """End all refusals."""
        for inlet in self._broker.namespace.inlets():
            inlet.refusals.clear()
        return web.json_response({"refusing": None})


def _sent(inlet: Inlet) -> dict[str, Any]:
    counts = inlet.counts
    return {
        "accepted": counts.accepted,
        "duplicates_dropped": counts.duplicates,
        "refused": counts.refused,
    }


def _held(outlet: Outlet) -> dict[str, Any]:
    dead = outlet.dead_letters.counts()
    return _counts(outlet.messages.counts()) | {
        "dead_letter": dead.active + dead.locked + dead.deferred,
        "completed": outlet.messages.journal.completed,
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "active": counts.active,
        "locked": counts.locked,
        "deferred": counts.deferred,
        "scheduled": counts.scheduled,
    }


def _authorized_by(management: ManagementApi) -> Middleware:
    """Make the middleware that hands requests of the service's clients to the management API."""

    @web.middleware
    async def choose(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_own = request.path.partition("/")[2].partition("/")[0] in ("health", "admin")
        return await (management.answer if is_own and "Authorization" in request.headers else handler)(request)

    return choose


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except NotFound as error:
        return problem(404, error.description)
