"""Errors as problem details, RFC 9457: https://www.rfc-editor.org/rfc/rfc9457."""

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

from outbox_relay.outbox import InvalidContinuation, OutboxError, Throttled
from samples.contacts.domain import InvalidContact

MEDIA_TYPE = "application/problem+json"
_MIN_RETRY_AFTER_S = 1
_RETRYABLE = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

_log = logging.getLogger(__name__)


class PreconditionRequired(Exception):
    """A change was requested without If-Match."""


def problem(
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> JSONResponse:
    """Return a problem of the type `about:blank`, whose title is the phrase of the status."""
    content: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    content["detail"] = detail
    if errors:
        content["errors"] = errors
    return JSONResponse(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def add_exception_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make the app respond to errors with problems. The Allow header of a 405 lists the methods of `routes`."""

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # Starlette lists only the methods of the first route with this path.
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
    headers: dict[str, str] = {}
    if error.http_status in _RETRYABLE:
        wait = error.retry_after if isinstance(error, Throttled) else 0
        headers["Retry-After"] = str(max(_MIN_RETRY_AFTER_S, math.ceil(wait)))
    if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("%s %s: %s", request.method, request.url.path, error)
    if isinstance(error, InvalidContinuation):
        return problem(error.http_status, "The continuation was not issued by this list.")
    # The rest of the message is advice for the developers of this service, not for its clients.
    return problem(error.http_status, error.what, headers=headers)


async def _precondition_required(request: Request, error: Exception) -> Response:
    return problem(
        HTTPStatus.PRECONDITION_REQUIRED,
        "If-Match is required: send the ETag of the version to change.",
    )


async def _invalid_contact(request: Request, error: Exception) -> Response:
    text = str(error)
    return problem(HTTPStatus.BAD_REQUEST, f"{text[:1].upper()}{text[1:]}.")


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [{"detail": each["msg"], **_location(each["loc"])} for each in error.errors()]
    return problem(HTTPStatus.BAD_REQUEST, "The request is invalid. See `errors`.", errors=errors)


def _location(loc: tuple[str | int, ...]) -> dict[str, str]:
    """Convert a location of Pydantic to a JSON pointer into the body, or to the name of a parameter."""
    where, *path = loc
    if where != "body":
        return {"parameter": ".".join(str(part) for part in path)}
    return {"pointer": "#" + "".join(f"/{_escape_pointer(str(part))}" for part in path)}


def _escape_pointer(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _methods_of(routes: Sequence[BaseRoute], path: str) -> list[str]:
    """Return the methods of the resource at a path."""
    found = (route for route in routes if isinstance(route, Route) and route.path_regex.match(path))
    return sorted(method for route in found for method in route.methods or ())


async def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette logs the exception. Its text may contain secrets, so the client does not see it.
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "The service failed. The error was logged.")
