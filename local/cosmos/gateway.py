"""From an HTTP request to a reply: authorization, the resource a path names, the handler for its verb."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from aiohttp import web

from local.cosmos import catalog_api, feed_api, items_api, offers_api, query_api
from local.cosmos.account import Account
from local.cosmos.authorization import Authorization
from local.cosmos.errors import BadRequest, CosmosError, MethodNotAllowed, NotFound
from local.cosmos.messages import JSON, Reply, Request, activity_id, error_reply

Handler = Callable[[Account, Request], Reply | Awaitable[Reply]]

_log = logging.getLogger(__name__)

_NOT_SERVED = ("users", "permissions", "sprocs", "triggers", "udfs", "clientencryptionkeys", "media")


class Gateway:
    """Answers every request; what goes wrong inside becomes the service's own kind of error."""

    def __init__(self, account: Account, authorization: Authorization, endpoint: Callable[[], str]) -> None:
        self._account = account
        self._authorization = authorization
        self._endpoint = endpoint

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        path = http.raw_path.partition("?")[0]
        if path == "/health":
            return web.Response(text="ok")
        if path.startswith("/admin/"):
            return self._administer(http.method, path)
        activity = activity_id(http.headers)
        try:
            reply = await self._serve(http, path, activity)
        except CosmosError as error:
            reply = error_reply(error, activity)
        except Exception as error:  # noqa: BLE001 - a bug here must look like the service failing, not hang up
            _log.exception("%s %s failed", http.method, path)
            reply = error_reply(CosmosError(f"{type(error).__name__}: {error}"), activity)
        reply.headers["x-ms-activity-id"] = activity
        reply.headers["x-ms-gatewayversion"] = "version=2.14.0"
        return web.Response(
            status=reply.status, body=reply.body, headers=reply.headers, content_type=JSON if reply.body else None
        )

    async def _serve(self, http: web.BaseRequest, path: str, activity: str) -> Reply:
        segments = tuple(unquote(segment) for segment in path.strip("/").split("/")) if path != "/" else ()
        resource_type, resource = resource_of(segments)
        self._authorization.check(http.method, resource_type, resource, http.headers)
        if not segments and http.method == "GET":
            return catalog_api.read_account(self._endpoint())
        handler = _handler(http, segments)
        body = await http.content.read() if http.body_exists else b""
        reply = handler(self._account, Request(http.method, segments, http.headers, body, activity))
        return reply if isinstance(reply, Reply) else await reply

    def _administer(self, method: str, path: str) -> web.Response:
        if path != "/admin/counts":
            return web.Response(status=404, text="There is GET /admin/counts.")
        if method != "GET":
            return web.Response(status=405, text="There is GET /admin/counts.")
        return web.Response(text=json.dumps(self._account.counts()), content_type=JSON)


def resource_of(segments: tuple[str, ...]) -> tuple[str, str]:
    """The resource type and the resource link that a request's signature covers."""
    if not segments:
        return "", ""
    if segments[-2:] == ("operations", "partitionkeydelete"):
        return "colls", "/".join(segments[:-2])
    if len(segments) % 2:
        return segments[-1].lower(), "/".join(segments[:-1])
    return segments[-2].lower(), "/".join(segments)


def _handler(http: web.BaseRequest, segments: tuple[str, ...]) -> Handler:
    kinds = tuple(segment.lower() for segment in segments[::2])
    if any(kind in _NOT_SERVED for kind in kinds):
        raise BadRequest(f"The resource type '{kinds[-1]}' is not supported by this account.")
    if kinds == ("dbs", "colls", "operations") and len(segments) == 6:
        kinds = (*kinds, segments[5].lower())
    verbs = _HANDLERS.get((kinds, len(segments) % 2 == 1))
    if verbs is None:
        raise NotFound(f"Resource Not Found: there is no resource at /{'/'.join(segments)}.")
    handler = verbs.get(http.method)
    if handler is None:
        raise MethodNotAllowed()
    return handler


def _read_documents(account: Account, request: Request) -> Reply | Awaitable[Reply]:
    if "a-im" in request.headers:
        return feed_api.read_change_feed(account, request)
    return query_api.read_feed(account, request)


def _post_documents(account: Account, request: Request) -> Reply | Awaitable[Reply]:
    if request.flag("x-ms-cosmos-is-batch-request"):
        return items_api.batch(account, request)
    if request.flag("x-ms-cosmos-is-query-plan-request"):
        return query_api.plan(account, request)
    if query_api.is_query(request):
        return query_api.query_items(account, request)
    return items_api.create_or_upsert(account, request)


def _post_databases(account: Account, request: Request) -> Reply | Awaitable[Reply]:
    if query_api.is_query(request):
        return query_api.query_resources(request, catalog_api.list_databases(account, request))
    return catalog_api.create_database(account, request)


def _post_containers(account: Account, request: Request) -> Reply | Awaitable[Reply]:
    if query_api.is_query(request):
        return query_api.query_resources(request, catalog_api.list_containers(account, request))
    return catalog_api.create_container(account, request)


_HANDLERS: dict[tuple[tuple[str, ...], bool], dict[str, Handler]] = {
    (("dbs",), True): {"GET": catalog_api.list_databases, "POST": _post_databases},
    (("dbs",), False): {"GET": catalog_api.read_database, "DELETE": catalog_api.delete_database},
    (("dbs", "colls"), True): {"GET": catalog_api.list_containers, "POST": _post_containers},
    (("dbs", "colls"), False): {
        "GET": catalog_api.read_container,
        "PUT": catalog_api.replace_container,
        "DELETE": catalog_api.delete_container,
    },
    (("dbs", "colls", "pkranges"), True): {"GET": feed_api.read_partition_key_ranges},
    (("dbs", "colls", "docs"), True): {"GET": _read_documents, "POST": _post_documents},
    (("dbs", "colls", "docs"), False): {
        "GET": items_api.read,
        "PUT": items_api.replace,
        "PATCH": items_api.patch,
        "DELETE": items_api.delete,
    },
    (("dbs", "colls", "operations", "partitionkeydelete"), False): {"POST": items_api.delete_logical_partition},
    (("dbs", "colls", "conflicts"), True): {
        "GET": feed_api.list_conflicts,
        "POST": query_api.query_conflicts,
    },
    (("dbs", "colls", "conflicts"), False): {
        "GET": feed_api.read_conflict,
        "DELETE": feed_api.read_conflict,
    },
    (("offers",), True): {"GET": offers_api.list_offers, "POST": offers_api.query_offers},
    (("offers",), False): {"GET": offers_api.read_offer, "PUT": offers_api.replace_offer},
}
