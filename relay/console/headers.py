"""The headers of every response."""

from __future__ import annotations

from aiohttp import web

_HEADERS = {
    # Neither scripts nor styles in the page itself, nothing from elsewhere, and no frame around it.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def set_headers(request: web.Request, response: web.StreamResponse) -> None:
    """For the signal `on_response_prepare`: data is stored nowhere, static files are asked about each time."""
    response.headers.update(_HEADERS)
    static = isinstance(response, web.FileResponse)
    response.headers["Cache-Control"] = "no-cache" if static else "no-store"
