"""The management API over HTTP: authorization, routing and paging."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlencode

from aiohttp import web

from outbox_relay.emulators.servicebus.administration import atom
from outbox_relay.emulators.servicebus.administration.catalog import Catalog
from outbox_relay.emulators.servicebus.administration.errors import (
    ApiError,
    BadRequest,
    MethodNotAllowed,
    NotAuthorized,
)
from outbox_relay.emulators.servicebus.administration.resources import Resources
from outbox_relay.emulators.servicebus.administration.targets import Context, Target, target_of
from outbox_relay.emulators.servicebus.authorization import Right
from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.errors import Unauthorized
from outbox_relay.emulators.servicebus.namespace import path_of

_OLDEST_VERSION = "2017-04"
_VERSION = re.compile(r"\d{4}-\d{2}")
_LARGEST_PAGE = 100
_FORWARD_HEADERS = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""The headers with tokens for the targets of forwarding, which clients send in addition to their own."""
_NEEDED = {"GET": "EntityRead", "DELETE": "EntityDelete"}


class ManagementApi:
    """Handles every request that no other route of the port matches."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._catalog = Catalog(broker)

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self.answer)]

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request; a refusal is the service's <Error/>."""
        path = unquote(request.raw_path.partition("?")[0]).strip("/")
        body = await request.read()
        try:
            self._authorize(request, path)
            context = self._context(request)
            return self._carry_out(request, context, target_of(path, context), body)
        except ApiError as error:
            return _xml(error.body(self._broker.namespace.name), error.status, "application/xml")

    def _authorize(self, request: web.Request, path: str, header: str = "Authorization") -> None:
        token = request.headers.get(header)
        if not token:
            raise NotAuthorized(f"MissingToken: The {header} header was not found.")
        try:
            claim = self._broker.access.check(token, path)
        except Unauthorized as error:
            raise NotAuthorized(error.description) from error
        if not claim.rights & Right.MANAGE:
            needed = _NEEDED.get(request.method, "EntityWrite")
            raise NotAuthorized(f"Manage,{needed} claims required for this operation.")

    def _context(self, request: web.Request) -> Context:
        version = request.query.get("api-version", _OLDEST_VERSION)
        if not _VERSION.fullmatch(version):
            raise BadRequest(f"The api-version '{version}' is not valid.")
        resources = Resources(_base(request), version, premium=self._catalog.premium)
        return Context(self._broker.namespace, self._catalog, resources, version)

    def _carry_out(self, request: web.Request, context: Context, target: Target, body: bytes) -> web.Response:
        if request.method == "GET":
            return self._get(request, target)
        if request.method == "PUT":
            update = request.headers.get("If-Match") is not None
            description = atom.read_description(body)
            for name, header in _FORWARD_HEADERS.items():
                if destination := atom.text_of(description, name):
                    self._authorize(request, path_of(destination), header)
            entry = target.put(description, update=update)
            return self._entry(entry, 200 if update else 201)
        if request.method == "DELETE":
            target.delete()
            return web.Response(status=200)
        raise MethodNotAllowed(request.method)

    def _get(self, request: web.Request, target: Target) -> web.Response:
        entries = target.entries()
        if entries is not None:
            return self._page(request, entries)
        entry = target.get()
        if entry is None:
            # The service has no 404 for what does not exist: it lists nothing.
            return self._feed("Publicly Listed Services", _base(request) + request.path_qs, [], None)
        return self._entry(entry, 200)

    def _page(self, request: web.Request, entries: list[atom.Entry]) -> web.Response:
        skip, top = _number(request, "$skip", 0), _number(request, "$top", _LARGEST_PAGE)
        end = skip + min(top, _LARGEST_PAGE)
        here = _base(request) + request.path
        following = None
        if end < len(entries) and top:
            query = {**request.query, "$skip": end, "$top": top}
            following = f"{here}?{urlencode(query)}"
        title = request.path.rpartition("/")[2].capitalize()
        return self._feed(title, f"{_base(request)}{request.path_qs}", entries[skip:end], following)

    def _feed(self, title: str, address: str, entries: list[atom.Entry], following: str | None) -> web.Response:
        body = atom.write_feed(title, address, entries, self._broker.namespace.name, following)
        return _xml(body, 200, "application/atom+xml;type=feed")

    def _entry(self, entry: atom.Entry, status: int) -> web.Response:
        body = atom.write_entry(entry, self._broker.namespace.name)
        return _xml(body, status, "application/atom+xml;type=entry")


def _base(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}"


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,9}", text):
        raise BadRequest(f"'{text}' is no valid value of {name}.")
    return int(text)


def _xml(body: bytes, status: int, content_type: str) -> web.Response:
    return web.Response(status=status, body=body, headers={"Content-Type": f"{content_type};charset=utf-8"})
