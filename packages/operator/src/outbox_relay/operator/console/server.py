"""How an application is served: who may see it, with which headers, and on which port."""

from __future__ import annotations

import base64
import binascii
import errno
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from relay.core.errors import UsageError

_PRINCIPAL = "X-MS-CLIENT-PRINCIPAL"
_PRINCIPAL_ID = "X-MS-CLIENT-PRINCIPAL-ID"
_READING = frozenset({"GET", "HEAD"})
_OTHER_SITES = frozenset({"cross-site", "same-site"})

_HEADERS = {
    # Neither scripts nor styles in the page itself, nothing from elsewhere, and no frame around it.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

# Streams end at once; this is for an answer under way.
_SHUTDOWN_S = 3.0

Access = Callable[[web.Request], web.Response | None]
"""Decides about every request, of a static file as well: the refusal, or None if it may be served."""


def loopback(request: web.Request) -> web.Response | None:
    """Return None for a request to an address of this machine alone, or else the refusal.

    The Host header must name this machine. A page of another site, whose name resolves to 127.0.0.1 (DNS
    rebinding), sends its own name.
    """
    if is_loopback(_host_name(request)):
        return None
    return web.Response(
        status=403,
        text="This console is for this machine alone: open it as http://localhost or http://127.0.0.1, with "
        "its port.\n",
    )


def platform_authentication(request: web.Request) -> web.Response | None:
    """Return None for a request that the platform has authenticated, or else the refusal.

    The platform is Azure Container Apps or App Service, at an address that others reach.

    It sets these headers for who has signed in, and removes them from requests that come from outside.

    https://learn.microsoft.com/azure/container-apps/authentication#access-user-claims-in-application-code
    """
    if request.headers.get(_PRINCIPAL_ID, "").strip() and _is_principal(request.headers.get(_PRINCIPAL, "")):
        return None
    return web.Response(
        status=401,
        text=f"Nobody is signed in: the headers {_PRINCIPAL} and {_PRINCIPAL_ID} are missing. Turn on the "
        "authentication of Azure Container Apps or App Service for this console, and require it "
        "(docs/console.md).\n",
    )


def access_for(host: str) -> Access:
    """Return the rule of who may see a console on this address or name. Nothing else decides about it."""
    return loopback if is_loopback(host) else platform_authentication


def is_loopback(name: str) -> bool:
    """Return True if an address is this machine's own, or a name that can mean no other machine."""
    if name == "localhost":  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def guarded(access: Access) -> Middleware:
    """Return the middleware that applies the access rule.

    Only the page itself may ask for changes: browsers name the origin of a request that changes something. Another
    site may link to the page, and ask for nothing in a person's name: a request costs work on the services, though
    that site cannot read the answer.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = access(request)
        if refused is not None:
            return refused
        allowed = _from_this_page if request.method not in _READING else _not_from_another_site
        if not allowed(request):
            return web.Response(status=403, text="Only the console's own page may ask for this.\n")
        try:
            return await handler(request)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise web.HTTPNotFound from error  # no static file has such a name

    return guard


async def set_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set headers on the signal `on_response_prepare`.

    Data is stored nowhere, static files are asked about each time.
    """
    response.headers.update(_HEADERS)
    static = isinstance(response, web.FileResponse)
    response.headers["Cache-Control"] = "no-cache" if static else "no-store"


@asynccontextmanager
async def serving(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve it, and yield its address: `http://127.0.0.1:8080/`. Port 0 takes a free one.

    Raises:
        UsageError: Nothing can listen there.
    """
    # No access log: the addresses contain partition keys, which may be personal.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be listened on ({error.strerror})"
            raise UsageError(f"port {port} of {host} {why}: choose another with --port, or --port 0") from error
        bound = runner.addresses[0][1]
        yield f"http://[{host}]:{bound}/" if ":" in host else f"http://{host}:{bound}/"
    finally:
        await runner.cleanup()


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


def _not_from_another_site(request: web.Request) -> bool:
    """Return False for what the page of another site asks for, unless a person follows its link.

    https://www.w3.org/TR/fetch-metadata/
    """
    headers = request.headers
    if headers.get("Sec-Fetch-Site") not in _OTHER_SITES:
        return True
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"


def _host_name(request: web.Request) -> str:
    try:
        return URL(f"http://{request.host}").host or ""
    except ValueError:
        return ""


def _is_principal(text: str) -> bool:
    """Return True if the text has the form that the platform sends: a JSON object in Base64."""
    try:
        return isinstance(json.loads(base64.b64decode(text, validate=True)), dict)
    except (binascii.Error, ValueError, RecursionError):
        return False
