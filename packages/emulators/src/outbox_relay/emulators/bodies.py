"""The bodies of HTTP requests, as the applications of the emulators read them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web


async def json_body(request: web.Request) -> Any:
    """Return the value of the body as JSON, whatever charset is declared. Raises ValueError if it is no JSON."""
    try:
        return json.loads(await request.read())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


@web.middleware
async def refuse_unreadable(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer 400 to a body that is not encoded as declared."""
    try:
        return await handler(request)
    except web.RequestPayloadError as error:
        return web.json_response({"error": f"the body cannot be read: {error}"}, status=400)
