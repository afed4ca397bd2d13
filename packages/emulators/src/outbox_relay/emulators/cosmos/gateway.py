"""From an HTTP request to a reply: authorization, faults, the resource of a path, the handler of a method."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from urllib.parse import unquote

from aiohttp import web

from outbox_relay.emulators.access import Access
from outbox_relay.emulators.cosmos import admin, catalog_api, feed_api, items_api, offers_api, query_api
from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.authorization import Authorization
from outbox_relay.emulators.cosmos.errors import (
    PARTITION_KEY_RANGE_GONE,
    BadRequest,
    CosmosError,
    Gone,
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from outbox_relay.emulators.cosmos.faults import AnswerStopped, ConnectionCut, Fault, FaultKind, Faults, Target
from outbox_relay.emulators.cosmos.messages import JSON, Reply, Request, activity_id, body_of, error_reply

# A client in direct mode asks for the addresses of a partition's replicas, to connect to them over TCP.
_DIRECT_MODE = (
    "This emulator serves clients in gateway mode only, and the client asked for the addresses that direct mode "
    "needs. Set the client's connection mode to gateway mode: ConnectionMode = ConnectionMode.Gateway in the "
    "CosmosClientOptions of .NET, gatewayMode() of the CosmosClientBuilder in Java."
)
_AMBIGUOUS = (
    "Resource Not Found: a name with '/' or '\\' cannot be addressed in a path. Find the item by a query, or "
    "address it by its _self link."
)

_NOT_IN_PATH = """\
<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd">
<HTML><HEAD><TITLE>Bad Request</TITLE></HEAD><BODY><h2>Bad Request - Invalid URL</h2><hr>
<p>HTTP Error 400. The request URL is invalid: in gateway mode a name with a tab or a line break cannot be
addressed in a path. Find the item by a query, or address it by its _self link.</p></BODY></HTML>
"""

_DECODED_TWICE = (
    "The input authorization token can't serve the request. The gateway decodes a path twice and cuts whitespace "
    "off, so no signature fits an id that ends with whitespace, or holds % and two hexadecimal digits. Choose "
    "another id. Find the item by a query, or address it by its _self link."
)

Handler = Callable[[Account, Request], Reply | Awaitable[Reply]]
Endpoint = Callable[[str | None], str]
"""The account's endpoint for a client, by the Host header of its request."""

_log = logging.getLogger(__name__)

_DATE = re.compile(r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_VERSIONS = frozenset(
    (
        *("2014-08-21", "2015-04-08", "2015-06-03", "2015-08-06", "2015-12-16", "2016-05-30", "2016-07-11"),
        *("2016-11-14", "2017-01-19", "2017-02-22", "2017-05-03", "2017-11-15", "2018-06-18", "2018-08-31"),
        *("2018-09-17", "2018-12-31"),
    )
)
_BOOLEAN = frozenset(("true", "false"))
_CONTINUATION_LIMIT = "x-ms-documentdb-responsecontinuationtokenlimitinkb"
_CONTENT_FORMAT = "x-ms-documentdb-content-serialization-format"
_VALUES = {
    "x-ms-indexing-directive": frozenset(("default", "include", "exclude")),
    "x-ms-documentdb-query-enable-scan": _BOOLEAN,
    "x-ms-documentdb-query-enable-low-precision-order-by": _BOOLEAN,
    "x-ms-documentdb-query-emit-traces": _BOOLEAN,
    "x-ms-consistency-level": frozenset(("strong", "boundedstaleness", "session", "eventual", "consistentprefix")),
    _CONTENT_FORMAT: frozenset(("jsontext", "cosmosbinary")),
}
_IN_NO_NAME = frozenset("/\\")
# The gateway refuses them in every path (RoutingGatewayCosmosItemIdEncodingTests.cs in azure-cosmos-dotnet-v3).
_IN_NO_PATH = frozenset("\t\r\n")

_NOT_SERVED = ("users", "permissions", "sprocs", "triggers", "udfs", "media")


class Gateway:
    """Answers every request. An exception inside becomes the service's own kind of error."""

    def __init__(
        self, account: Account, authorization: Authorization, endpoint: Endpoint, faults: Faults, access: Access
    ) -> None:
        self._access = access
        self._account = account
        self._authorization = authorization
        self._endpoint = endpoint
        self._faults = faults
        self._admin = admin.Admin(account, faults)

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        refused = self._access.refused(http)
        if refused is not None:
            return refused
        path = _path_of(http.raw_path)
        if path == "/health":
            return web.Response(text="ok")
        if path.startswith(admin.PATH):
            return await self._admin.answer(http, path)
        if not _IN_NO_PATH.isdisjoint(unquote(path)):
            # The web server in front of the gateway answers, and not in JSON: .NET's tests expect status 400 of it
            # (CosmosItemIdEncodingTestsBase.cs), those of @azure/cosmos 4.3.0 an error without a code
            # (itemIdEncoding.spec.ts), as of text that is no JSON.
            return web.Response(status=400, text=_NOT_IN_PATH, content_type="text/html")
        activity = activity_id(http.headers)
        stops = False
        try:
            reply = await self._serve(http, path, activity)
        except AnswerStopped as stopped:
            reply, stops = stopped.reply, True
        except ConnectionCut:
            return _cut(http)
        except CosmosError as error:
            reply = error_reply(error, activity, path)
        except RecursionError:
            reply = error_reply(BadRequest("The request is nested too deeply."), activity, path)
        except Exception as error:  # noqa: BLE001 - a bug here must look like a failure of the service, not of the connection
            _log.exception("%s %s failed", http.method, path)
            reply = error_reply(CosmosError(f"{type(error).__name__}: {error}"), activity, path)
        if reply.status < 400:
            reply.headers["content-location"] = self._location(http)
        reply.headers["x-ms-activity-id"] = activity
        reply.headers["x-ms-gatewayversion"] = "version=2.14.0"
        if stops:
            return await self._send_half(http, reply)
        return web.Response(
            status=reply.status, body=reply.body, headers=reply.headers, content_type=JSON if reply.body else None
        )

    def _location(self, http: web.BaseRequest) -> str:
        """Return the URI of a request, at the endpoint that answers it.

        Its host shows clients which region that was.
        """
        return self._endpoint(http.headers.get("host")).rstrip("/") + http.raw_path

    async def _send_half(self, http: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        response.content_type = JSON
        response.content_length = max(2, len(reply.body))
        await response.prepare(http)
        await response.write(reply.body[: len(reply.body) // 2])
        await self._faults.hang(None)
        return _cut(http)

    async def _serve(self, http: web.BaseRequest, path: str, activity: str) -> Reply:
        segments = tuple(unquote(segment) for segment in path.strip("/").split("/")) if path != "/" else ()
        if segments and segments[0].lower() == "addresses":
            raise BadRequest(_DIRECT_MODE)
        if any(not _IN_NO_NAME.isdisjoint(segment) for segment in segments):
            raise NotFound(_AMBIGUOUS)
        self._check_signature(http, segments)
        _check_headers(http.headers)
        body = await body_of(http)
        request = Request(http.method, segments, http.headers, body, activity)
        if self._faults.any_pending and (fault := self._faults.apply_to(Target.of(request))):
            _log.info("Fault %d (%s) applied to %s %s", fault.id, fault.plan.kind, http.method, path)
            await self._apply_fault(fault, request, http)
        return await self._answer(request)

    def _check_signature(self, http: web.BaseRequest, segments: tuple[str, ...]) -> None:
        """Check the signature of a request against its path as the service's routing gateway reads it.

        The gateway decodes the path once more than the client that signed it, and cuts whitespace off:
        CosmosItemIdEncodingTestsBase.cs in azure-cosmos-dotnet-v3, itemIdEncoding.spec.ts of @azure/cosmos 4.3.0.
        Its compute gateway does not, nor do newer versions of it
        (https://github.com/Azure/azure-sdk-for-java/issues/36265).

        Raises:
            Unauthorized: The signature is missing, or is that of another path.
        """
        decoded = tuple(unquote(segment).rstrip() for segment in segments)
        try:
            self._authorization.check(http.method, *resource_of(decoded), http.headers)
        except Unauthorized as error:
            # A signature that fits neither path is simply wrong.
            self._authorization.check(http.method, *resource_of(segments), http.headers)
            raise Unauthorized(_DECODED_TWICE) from error

    async def _apply_fault(self, fault: Fault, request: Request, http: web.BaseRequest) -> None:
        """Raise what the fault says: the service's error, or ConnectionCut."""
        match fault.plan.kind:
            case FaultKind.THROTTLE:
                raise TooManyRequests(fault.plan.retry_after_ms)
            case FaultKind.UNAVAILABLE:
                raise ServiceUnavailable()
            case FaultKind.GONE:
                raise Gone(
                    "The requested resource is no longer available at the server.", PARTITION_KEY_RANGE_GONE
                )
            case FaultKind.TIMEOUT:
                if fault.plan.applies:
                    await self._apply(request)
                await self._faults.hang(fault.plan.hang_ms)
                raise RequestTimeout()
            case FaultKind.DROP:
                raise ConnectionCut()
            case FaultKind.DROP_AFTER:
                await self._apply(request)
                raise ConnectionCut()
            case FaultKind.SILENT:
                if fault.plan.applies:
                    await self._apply(request)
                await self._faults.hang_while(lambda: _is_connected(http))
                raise ConnectionCut()
            case FaultKind.SILENT_MIDWAY:
                raise AnswerStopped(await self._answer(request))

    async def _apply(self, request: Request) -> None:
        """Carry the request out, without an answer."""
        with suppress(CosmosError):
            await self._answer(request)

    async def _answer(self, request: Request) -> Reply:
        if not request.segments and request.method == "GET":
            return catalog_api.read_account(self._endpoint(request.headers.get("host")))
        reply = _handler(request)(self._account, request)
        return reply if isinstance(reply, Reply) else await reply


def _path_of(raw_path: str) -> str:
    """Return the path without a query, except behind an item's id.

    .NET's client does not escape a question mark in an id, and the service finds the item
    (CosmosItemIdEncodingTestsBase.cs in azure-cosmos-dotnet-v3).
    """
    path, mark, query = raw_path.partition("?")
    segments = path.strip("/").lower().split("/")
    is_item = len(segments) == 6 and segments[::2] == ["dbs", "colls", "docs"]
    return f"{path}%3F{query}" if mark and is_item else path


def resource_of(segments: tuple[str, ...]) -> tuple[str, str]:
    """Return the resource type and the resource link that a request's signature covers."""
    if not segments:
        return "", ""
    if segments[-2:] == ("operations", "partitionkeydelete"):
        return "colls", "/".join(segments[:-2])
    if len(segments) % 2:
        return segments[-1].lower(), "/".join(segments[:-1])
    return segments[-2].lower(), "/".join(segments)


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise BadRequest for a version of the API that there cannot be, and for values that a header cannot have.

    Source: HeadersValidationTests.cs in azure-cosmos-dotnet-v3.
    """
    version = headers.get("x-ms-version")
    if version is not None and not _is_version(version):
        raise BadRequest(f"The x-ms-version '{version}' is not a version of the API, such as 2020-07-15.")
    for name, values in _VALUES.items():
        value = headers.get(name, "")
        if value and value.lower() not in values:
            raise BadRequest(f"The value '{value}' specified for the header '{name}' is invalid.")
    if headers.get(_CONTENT_FORMAT, "").lower() == "cosmosbinary":
        raise BadRequest(f"Answers in binary JSON ({_CONTENT_FORMAT}) are not supported here: ask for JsonText.")
    _check_continuation_limit(headers.get(_CONTINUATION_LIMIT, "1"))
    if headers.get("x-ms-enumeration-direction", "").lower() == "reverse":
        raise BadRequest("Reading a feed in reverse (x-ms-enumeration-direction) is not supported here.")


def _check_continuation_limit(limit: str) -> None:
    """Raise BadRequest, in the service's words, unless the limit is a positive number.

    Source: CosmosItemTests.cs (NegativeQueryTest) and QueryTests.cs in azure-cosmos-dotnet-v3.
    """
    if not limit.isdecimal():
        raise BadRequest(
            "Please pass in a valid continuation token size limit which must be a positive integer: the header "
            f"'{_CONTINUATION_LIMIT}' is '{limit}'."
        )
    if not limit.strip("0"):
        raise BadRequest(
            f"The continuation token limit specified is not large enough: '{_CONTINUATION_LIMIT}' is '{limit}'."
        )


def _is_version(text: str) -> bool:
    # Those after the last one of the list are the clients' affair.
    return _DATE.fullmatch(text) is not None and (text in _VERSIONS or text > max(_VERSIONS))


def _is_connected(http: web.BaseRequest) -> bool:
    return http.transport is not None and not http.transport.is_closing()


def _cut(http: web.BaseRequest) -> web.Response:
    """Close the connection; aiohttp requires a response, which is never received."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response()


def _handler(request: Request) -> Handler:
    segments = request.segments
    kinds = tuple(segment.lower() for segment in segments[::2])
    if "clientencryptionkeys" in kinds:
        raise BadRequest("Always Encrypted is not supported by this account: it has no client encryption keys.")
    if any(kind in _NOT_SERVED for kind in kinds):
        raise BadRequest(f"The resource type '{kinds[-1]}' is not supported by this account.")
    if kinds == ("dbs", "colls", "operations") and len(segments) == 6:
        kinds = (*kinds, segments[5].lower())
    verbs = _HANDLERS.get((kinds, len(segments) % 2 == 1))
    if verbs is None:
        raise NotFound(f"Resource Not Found: there is no resource at /{'/'.join(segments)}.")
    handler = verbs.get(request.method)
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
        return query_api.query_resources(request, catalog_api.databases(account, request))
    return catalog_api.create_database(account, request)


def _post_containers(account: Account, request: Request) -> Reply | Awaitable[Reply]:
    if query_api.is_query(request):
        return query_api.query_resources(request, catalog_api.containers(account, request))
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
