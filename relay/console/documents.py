"""The values of the model as JSON: objects with the names of their attributes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aiohttp import web

from relay import jsontext
from relay.console.model import Snapshot, Timeline, Tracked


def document_of(value: Snapshot | Timeline | Tracked) -> dict[str, Any]:
    """A value of the model as a JSON object: times in seconds since 1970, null for what is not known."""
    return asdict(value)


def json_response(value: Snapshot | Timeline) -> web.Response:
    """The answer with this value."""
    return web.Response(body=jsontext.encode(document_of(value)), content_type="application/json")
