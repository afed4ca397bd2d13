"""The OpenAPI document: what FastAPI finds out by itself, and the answers it cannot know of."""

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
_WITH_WAIT = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
# What any request can meet.
_ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: HTTPStatus) -> Responses:
    """The problems an operation can answer with: these, and those of every operation."""
    return {int(status): _problem(status) for status in sorted({*statuses, *_ALWAYS})}


def _problem(status: HTTPStatus) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": status.phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    return {**answer, "headers": _RETRY_AFTER} if status in _WITH_WAIT else answer


def describe(app: FastAPI) -> dict[str, Any]:
    """The document: with the problem's schema, without the 422 that FastAPI assumes and this API never says."""
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    schemas = document["components"]["schemas"]
    for assumed in ("HTTPValidationError", "ValidationError"):
        schemas.pop(assumed, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**problem.pop("$defs"), "Problem": problem}
    return document
