"""HTTP requests as the emulators read them: JSON bodies, and numbers in paths, headers and queries."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

_MOST_DIGITS = 18


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


def whole_number(text: str) -> int | None:
    """Return the value of a text of up to 18 digits, or None for any other text.

    int() also reads the digits of other scripts, and raises for more than 4,300.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None
