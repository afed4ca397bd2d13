"""Problem details for whatever goes wrong: https://www.rfc-editor.org/rfc/rfc9457."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from outbox import InvalidContinuation, OutboxError, Throttled
from samples.contacts.domain import InvalidContact

MEDIA_TYPE = "application/problem+json"
_RETRY_S = 1
_RETRYABLE = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

_log = logging.getLogger(__name__)


class PreconditionRequired(Exception):
    """A change came without If-Match."""


def problem(
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> JSONResponse:
    """One problem of the type `about:blank`: its title is that of the status."""
    content: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    content["detail"] = detail
    if errors:
        content["errors"] = errors
    return JSONResponse(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Have every error of the API, whose routes these are, answered with a problem."""

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # Starlette tells the methods of the first route with this path alone.
            headers["Allow"] = ", ".join(_methods_of(routes, request.url.path)) or headers.get("Allow", "")
        return problem(error.status_code, str(error.detail), headers=headers)

    handlers = {
        OutboxError: _outbox_error,
        PreconditionRequired: _precondition_required,
        InvalidContact: _invalid_contact,
        RequestValidationError: _invalid_request,
        HTTPException: http_error,
        Exception: _unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _outbox_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OutboxError)
    headers = {}
    if error.http_status in _RETRYABLE:
        wait = error.retry_after if isinstance(error, Throttled) else 0
        headers["Retry-After"] = str(max(_RETRY_S, math.ceil(wait)))
    if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("%s %s: %s", request.method, request.url.path, error)
    if isinstance(error, InvalidContinuation):
        return problem(error.http_status, "The continuation is none that this list has given.")
    # What to do about it is told to this service's developers, in terms that are none of its clients'.
    return problem(error.http_status, error.what, headers=headers)


async def _precondition_required(request: Request, error: Exception) -> Response:
    return problem(
        HTTPStatus.PRECONDITION_REQUIRED,
        "A change names the version it is meant for: send If-Match with the ETag of your last read.",
    )


async def _invalid_contact(request: Request, error: Exception) -> Response:
    text = str(error)
    return problem(HTTPStatus.BAD_REQUEST, f"{text[:1].upper()}{text[1:]}.")


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [{"detail": fault["msg"], **_place(fault["loc"])} for fault in error.errors()]
    return problem(HTTPStatus.BAD_REQUEST, "The request does not fit what the API takes.", errors=errors)


def _place(location: tuple[str | int, ...]) -> dict[str, str]:
    """Where the fault is: a JSON pointer into the body, or the name of a parameter."""
    where, *path = location
    if where != "body":
        return {"parameter": ".".join(str(part) for part in path)}
    return {"pointer": "#" + "".join(f"/{_escaped(str(part))}" for part in path)}


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _methods_of(routes: Sequence[BaseRoute], path: str) -> list[str]:
    """What can be done with the resource at a path."""
    found = (route for route in routes if isinstance(route, Route) and route.path_regex.match(path))
    return sorted(method for route in found for method in route.methods or ())


async def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette logs the error itself; its text may hold what is nobody's business.
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "The service failed; it has been noted.")
