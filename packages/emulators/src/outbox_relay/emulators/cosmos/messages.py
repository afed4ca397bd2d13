"""A request as the handlers see it, and the reply they give."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.documents import MAX_ITEM_BYTES, Item
from outbox_relay.emulators.cosmos.errors import BadRequest, CosmosError, NotFound, TooLarge, TooManyRequests
from outbox_relay.emulators.cosmos.operations import NotModified, Precondition
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.sessions import HEADER, token_of

JSON = "application/json"
DEFAULT_PAGE_SIZE = 100
LARGEST_PAGE_SIZE = 1000
_LARGEST_BODY = 2 * MAX_ITEM_BYTES
"""An item may be written with escapes and blanks that its size does not count."""
_MAX_INT32 = 2**31 - 1
_OWNER_NAME = "x-ms-alt-content-path"
OWNER_RID = "x-ms-content-path"


@dataclass(frozen=True, slots=True)
class Request:
    """A signed request: its path in decoded segments, its headers (by name in any case) and its body."""

    method: str
    segments: tuple[str, ...]
    headers: Mapping[str, str]
    body: bytes
    activity_id: str

    def flag(self, name: str) -> bool:
        return self.headers.get(name, "").lower() == "true"

    def json(self) -> jsontext.Part:
        return jsontext.parse(jsontext.decode(self.body))

    def json_object(self) -> dict[str, Any]:
        value = self.json().value
        if not isinstance(value, dict):
            raise BadRequest("The request payload is invalid: it has to be a JSON object.")
        return value

    @property
    def precondition(self) -> Precondition:
        return Precondition(self.headers.get("if-match"), self.headers.get("if-none-match"))

    @property
    def page_size(self) -> int:
        """The page size: the requested one, the service's default, or its maximum for -1."""
        text = self.headers.get("x-ms-max-item-count", "")
        try:
            size = int(text) if text else DEFAULT_PAGE_SIZE
        except ValueError as error:
            raise BadRequest(f"x-ms-max-item-count is '{text}', which is no number.") from error
        if size == -1:
            return LARGEST_PAGE_SIZE
        if not 1 <= size <= _MAX_INT32:
            raise BadRequest(f"x-ms-max-item-count is {size}; it has to be positive, a number of 32 bits, or -1.")
        return size


@dataclass(slots=True)
class Reply:
    """Status, body and headers of an answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


async def body_of(http: web.BaseRequest) -> bytes:
    """Read the body. Raises TooLarge before more of it is read than any request may have, and BadRequest."""
    body = bytearray()
    try:
        async for part in http.content.iter_any():
            body += part
            if len(body) > _LARGEST_BODY:
                raise TooLarge()
    except web.RequestPayloadError as error:
        raise BadRequest(f"The request body cannot be read: {error}.") from error
    return bytes(body)


def activity_id(headers: Mapping[str, str]) -> str:
    return headers.get("x-ms-activity-id") or str(uuid.uuid4())


def json_reply(status: int, value: Any, charge: float = 1.0, **headers: str) -> Reply:
    """Return a reply whose body is a JSON value; header names are given with `_` for `-`."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"x-ms-request-charge": str(charge), **named})


def error_reply(error: CosmosError, activity: str, path: str) -> Reply:
    """Return the service's error body, `{"code": …, "message": …}`, and its sub-status.

    It answers a request to that path.
    """
    headers = {"x-ms-request-charge": "1.0"} | error.headers
    if error.substatus or error.status >= 400:
        headers["x-ms-substatus"] = str(error.substatus)
    if isinstance(error, TooManyRequests):
        headers["x-ms-retry-after-ms"] = str(error.retry_after_ms)
    if isinstance(error, NotModified):
        return Reply(304, b"", headers | {"etag": error.etag})
    message = f"{error.text}\r\nActivityId: {activity}, Request URI: {path}"
    body = {"code": error.code, "message": message, **error.details}
    return Reply(error.status, json.dumps(body).encode(), headers)


def owner_headers(path: str, rid: str) -> dict[str, str]:
    """Return the headers that name the resource above the one that is answered, by its path and by its `_rid`."""
    return {_OWNER_NAME: path, OWNER_RID: rid}


def data_headers(
    container: Container, partition: Partition | None, charge: float, lsn: int | None = None
) -> dict[str, str]:
    """Return the headers of an answer about items: charge, partition, and session token.

    `lsn` is that of the replica that answers, if it lags behind its partition.
    """
    partitions = container.partitions if partition is None else [partition]
    headers = {
        "x-ms-request-charge": str(charge),
        HEADER: ",".join(token_of(each, lsn) for each in partitions),
        **owner_headers(container.path, container.rid),
    }
    if partition is not None:
        headers["lsn"] = headers["x-ms-global-committed-lsn"] = str(partition.lsn if lsn is None else lsn)
        headers["x-ms-documentdb-partitionkeyrangeid"] = partition.id
    return headers


@contextmanager
def refused_at(container: Container, partition: Partition | None, lsn: int | None = None) -> Iterator[None]:
    """Add to refusals the session token of the partition that refused.

    They do not name the container: azure-cosmos (4.17.1) adopts their token only if they do, which is not
    documented. Nor has a 404 the container's `_rid` (BatchSinglePartitionKeyTests.cs
    of azure-cosmos-dotnet-v3).
    """
    try:
        yield
    except CosmosError as error:
        error.headers = data_headers(container, partition, 1.0, lsn)
        del error.headers[_OWNER_NAME]
        if isinstance(error, NotFound):
            del error.headers[OWNER_RID]
        raise


def quota_headers(size_kb: int = 0, count: int = -1) -> dict[str, str]:
    """Return the quota of a container, and its usage, in kilobytes.

    The answers to requests for items have them as well (CosmosItemTests.cs of azure-cosmos-dotnet-v3); nothing is
    counted for these.
    """
    quota = 50 * 1024 * 1024
    return {
        "x-ms-resource-quota": _sizes(51_200, quota, -1),
        "x-ms-resource-usage": _sizes(0, size_kb, count),
    }


def _sizes(document: int, documents: int, count: int) -> str:
    return f"documentSize={document};documentsSize={documents};documentsCount={count};collectionSize={documents};"


def item_reply(
    status: int,
    container: Container,
    partition: Partition,
    item: Item,
    charge: float,
    lsn: int | None = None,
) -> Reply:
    headers = data_headers(container, partition, charge, lsn)
    headers["etag"] = item.etag
    headers["x-ms-item-lsn"] = str(item.lsn)
    headers |= quota_headers()
    return Reply(status, item.rendered(container.raw_rid, container.self_link).encode(), headers)


def documents_reply(container: Container, texts: list[str], headers: dict[str, str]) -> Reply:
    """Return a page of items, each already JSON."""
    body = f'{{"_rid":"{container.rid}","Documents":[{",".join(texts)}],"_count":{len(texts)}}}'
    return Reply(200, body.encode(), headers | {"x-ms-item-count": str(len(texts))})


def json_page(
    rid: str, name: str, values: list[dict[str, Any]], headers: Mapping[str, str] | None = None
) -> Reply:
    """Return a page of resources other than items."""
    reply = json_reply(200, {"_rid": rid, name: values, "_count": len(values)})
    reply.headers |= {"x-ms-item-count": str(len(values))} | dict(headers or {})
    return reply
