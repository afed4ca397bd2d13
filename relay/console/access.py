"""Access control: local browsers on a loopback address, signed-in users elsewhere."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

_PRINCIPAL = "X-MS-CLIENT-PRINCIPAL"
_PRINCIPAL_ID = "X-MS-CLIENT-PRINCIPAL-ID"
_READING = frozenset({"GET", "HEAD"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access(Protocol):
    """Decides about every request, of a static file as well."""

    def refusal(self, request: web.Request, /) -> web.Response | None:
        """The answer to a request that may not be served; None for one that may."""


class Loopback:
    """For an address of this machine alone.

    The Host header must name this machine. A page of another site, whose name resolves to 127.0.0.1 (DNS
    rebinding), sends its own name.
    """

    def refusal(self, request: web.Request, /) -> web.Response | None:
        if is_loopback(_host_name(request)):
            return None
        return web.Response(
            status=403,
            text="This console is for this machine alone: open it as http://localhost or http://127.0.0.1, with "
            "its port.\n",
        )


class PlatformAuthentication:
    """For an address that others reach: the authentication of Azure Container Apps or App Service.

    It sets these headers for who has signed in, and removes them from requests that come from outside.

    https://learn.microsoft.com/azure/container-apps/authentication#access-user-claims-in-application-code
    """

    def refusal(self, request: web.Request, /) -> web.Response | None:
        if request.headers.get(_PRINCIPAL_ID, "").strip() and _is_principal(request.headers.get(_PRINCIPAL, "")):
            return None
        return web.Response(
            status=401,
            text=f"Nobody is signed in: the headers {_PRINCIPAL} and {_PRINCIPAL_ID} are missing. Turn on the "
            "authentication of Azure Container Apps or App Service for this console, and require it "
            "(docs/console.md).\n",
        )


def access_for(host: str) -> Access:
    """Who may see a console that listens on this address or name. Nothing else decides about it."""
    return Loopback() if is_loopback(host) else PlatformAuthentication()


def is_loopback(name: str) -> bool:
    """Whether an address is this machine's own, or a name can mean no other machine."""
    if name == "localhost":  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def guarded(access: Access) -> Middleware:
    """The middleware that applies it.

    What is not for reading alone is served only to this page itself, and not to a form on another site: browsers
    name the origin of a request that changes something.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = access.refusal(request)
        if refused is not None:
            return refused
        if request.method not in _READING and not _from_this_page(request):
            return web.Response(status=403, text="Only the console's own page may ask for this.\n")
        return await handler(request)

    return guard


def _from_this_page(request: web.Request) -> bool:
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is None and origin is None:
        return True  # no browser
    if site is not None:
        return site == "same-origin"
    try:
        return URL(origin or "").authority == URL(f"http://{request.host}").authority
    except ValueError:
        return False


def _host_name(request: web.Request) -> str:
    try:
        return URL(f"http://{request.host}").host or ""
    except ValueError:
        return ""


def _is_principal(text: str) -> bool:
    """Whether this is what the platform sends: a JSON object in Base64."""
    try:
        return isinstance(json.loads(base64.b64decode(text, validate=True)), dict)
    except (binascii.Error, ValueError):
        return False
