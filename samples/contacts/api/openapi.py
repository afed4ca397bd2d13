"""The OpenAPI document: what FastAPI derives, plus headers and errors it cannot know."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from samples.contacts.api.problems import MEDIA_TYPE
from samples.contacts.api.schemas import Problem

ETAG = {"ETag": {"description": "The version.", "required": True, "schema": {"type": "string"}}}
LOCATION = {"Location": {"description": "The contact.", "required": True, "schema": {"type": "string"}}}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}
_WITH_RETRY_AFTER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
# The errors of every operation.
_COMMON = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: HTTPStatus) -> Responses:
    """Return the error responses of an operation: these and the common ones."""
    return {int(status): _problem(status) for status in sorted({*statuses, *_COMMON})}


def _problem(status: HTTPStatus) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": status.phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    return {**response, "headers": _RETRY_AFTER} if status in _WITH_RETRY_AFTER else response


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document with the schema of problems and without 422 responses, which this API never sends."""
    result = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    schemas = result["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**problem.pop("$defs"), "Problem": problem}
    return result
