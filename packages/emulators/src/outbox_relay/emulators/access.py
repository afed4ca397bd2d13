"""Who may use an HTTP port: programs, and pages that the port itself serves.

The keys are public and faults need none, so a page of another site must not reach an emulator through the browser
that shows it. Browsers say where a request comes from (`Origin`, `Sec-Fetch-Site`); SDKs send neither, or the
emulator's own address. A page whose name was made to resolve to this machine (DNS rebinding) has that name in
`Host`: it is neither an IP address nor configured.

https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

_OWN_SITE = frozenset({"same-origin", "none"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_OTHER_SITE = "Refused: a page of another site asked for this."


class Access:
    """The check of every request to a port. `hosts` are the names by which clients reach it; None is skipped."""

    def __init__(self, *hosts: str | None) -> None:
        self._hosts = {"localhost", *(host.lower() for host in hosts if host)}

    def refusal(self, headers: Mapping[str, str]) -> str | None:
        """Return the reason why a request with these headers is refused, or None if it may be served."""
        if headers.get("Sec-Fetch-Site", "none") not in _OWN_SITE:
            return _OTHER_SITE
        try:
            here, origin = urlsplit(f"//{headers.get('Host', 'localhost')}"), urlsplit(headers.get("Origin", ""))
            name = here.hostname or ""
            if not (name in self._hosts or _is_address(name)):
                return f"Refused: '{name}' is neither localhost, an IP address, nor a name of --allowed-host."
            default = _DEFAULT_PORTS.get(origin.scheme)
            if "Origin" in headers and (name, here.port or default) != (origin.hostname, origin.port or default):
                return _OTHER_SITE
        except ValueError:
            return "Refused: the header Host or Origin is malformed."
        return None

    def refused(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer of 403 to a request that is refused, or None."""
        why = self.refusal(request.headers)
        return None if why is None else web.Response(status=403, text=f"{why}\n")

    def middleware(self) -> Middleware:
        """Return the check as a middleware of an application. It must be the first one."""

        @web.middleware
        async def check(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            refused = self.refused(request)
            return await handler(request) if refused is None else refused

        return check


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
