"""JSON over HTTP, for the admin port."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from outbox_relay.emulators.bodies import json_body


async def json_object(request: web.Request) -> dict[str, Any]:
    """Return the JSON object a request holds; an empty one where it holds none."""
    try:
        body = await json_body(request)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def problem(status: int, what: str) -> web.Response:
    """Answer {"error": what is wrong}."""
    return web.json_response({"error": what}, status=status)
