"""The account itself, its databases and its containers over HTTP."""

from __future__ import annotations

import json
from typing import Any

from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.containers import Container, Database
from outbox_relay.emulators.cosmos.errors import PreconditionFailed
from outbox_relay.emulators.cosmos.listings import Listing
from outbox_relay.emulators.cosmos.messages import Reply, Request, json_reply, owner_headers, quota_headers
from outbox_relay.emulators.cosmos.offers import Throughput
from outbox_relay.emulators.cosmos.operations import NotModified

# The answers of accounts, as in the SDK's own tests (azure-cosmos-dotnet-v3, MockDocumentClient.cs). The .NET SDK
# refuses to query an account that answers with an empty object.
_QUERY_ENGINE = {
    "maxSqlQueryInputLength": 262144,
    "maxJoinsPerSqlQuery": 5,
    "maxLogicalAndPerSqlQuery": 500,
    "maxLogicalOrPerSqlQuery": 500,
    "maxUdfRefPerSqlQuery": 10,
    "maxInExpressionItemsCount": 16000,
    "queryMaxInMemorySortDocumentCount": 500,
    "maxQueryRequestTimeoutFraction": 0.9,
    "sqlAllowNonFiniteNumbers": False,
    "sqlAllowAggregateFunctions": True,
    "sqlAllowSubQuery": True,
    "sqlAllowScalarSubQuery": True,
    "allowNewKeywords": True,
    "sqlAllowLike": True,
    "sqlAllowGroupByClause": True,
    "maxSpatialQueryCells": 12,
    "spatialMaxGeometryPointCount": 256,
    "sqlDisableOptimizationFlags": 0,
    "sqlAllowTop": True,
    "enableSpatialIndexing": True,
}


def read_account(endpoint: str) -> Reply:
    """`GET /`: one region, session consistency."""
    location = [{"name": "Local", "databaseAccountEndpoint": endpoint}]
    replicas = {"minReplicaSetSize": 1, "maxReplicasetSize": 4}
    return json_reply(
        200,
        {
            "_self": "",
            "id": "local",
            "_rid": "local",
            "media": "//media/",
            "addresses": "//addresses/",
            "_dbs": "//dbs/",
            "writableLocations": location,
            "readableLocations": location,
            "enableMultipleWriteLocations": False,
            "userReplicationPolicy": {"asyncReplication": False, **replicas},
            "userConsistencyPolicy": {"defaultConsistencyLevel": "Session"},
            "systemReplicationPolicy": replicas,
            "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
            "queryEngineConfiguration": json.dumps(_QUERY_ENGINE),
        },
    )


def databases(account: Account, request: Request) -> Listing:
    return Listing.of("", "Databases", (each.rendered() for each in account.catalog.databases.values()))


def list_databases(account: Account, request: Request) -> Reply:
    return databases(account, request).reply(request)


def create_database(account: Account, request: Request) -> Reply:
    throughput = Throughput.requested(request.headers)
    database = account.catalog.create_database(request.json_object().get("id"))
    if throughput is not None:
        account.offers.create(database.rid, database.self_link, throughput)
    return _reply(201, database)


def read_database(account: Account, request: Request) -> Reply:
    return _reply(200, _database(account, request), request)


def delete_database(account: Account, request: Request) -> Reply:
    database = _database(account, request)
    _check_etag(request, database.etag)
    account.delete_database(database)
    return Reply(204, b"", {"x-ms-request-charge": "1.0"})


def containers(account: Account, request: Request) -> Listing:
    database = _database(account, request)
    found = (each.rendered() for each in database.containers.values())
    return Listing.of(database.rid, "DocumentCollections", found)


def list_containers(account: Account, request: Request) -> Reply:
    return containers(account, request).reply(request)


def create_container(account: Account, request: Request) -> Reply:
    database = _database(account, request)
    throughput = Throughput.requested(request.headers)
    if throughput is None and account.offers.of(database.self_link) is None:
        throughput = Throughput.default()
    container = account.create_container(database, request.json_object(), throughput)
    reply = _reply(201, container)
    reply.headers["x-ms-share-throughput"] = str(throughput is None)
    return reply


def read_container(account: Account, request: Request) -> Reply:
    container = account.container_of(request)
    reply = _reply(200, container, request)
    if request.flag("x-ms-documentdb-populatepartitionstatistics"):
        statistics = {"statistics": _statistics(account, container)}
        reply.body = json_reply(200, container.rendered() | statistics).body
    if request.flag("x-ms-documentdb-populatequotainfo"):
        size_kb = sum(each["sizeInKB"] for each in _statistics(account, container))
        reply.headers |= quota_headers(size_kb, account.count(container))
        reply.headers["x-ms-documentdb-collection-index-transformation-progress"] = "100"
    return reply


def replace_container(account: Account, request: Request) -> Reply:
    container = account.container_of(request)
    _check_etag(request, container.etag)
    account.catalog.replace_container(container, request.json_object())
    return _reply(200, container)


def delete_container(account: Account, request: Request) -> Reply:
    container = account.container_of(request)
    _check_etag(request, container.etag)
    account.offers.forget(container.self_link)
    account.catalog.delete_container(container)
    return Reply(204, b"", {"x-ms-request-charge": "1.0"})


def _database(account: Account, request: Request) -> Database:
    return account.catalog.database(request.segments[1])


def _statistics(account: Account, container: Container) -> list[dict[str, Any]]:
    statistics = []
    for partition in container.partitions:
        count, size = account.storage.execute(
            "SELECT count(*), coalesce(sum(length(text)), 0) FROM items WHERE partition=?", (partition.number,)
        ).fetchone()
        statistics.append(
            {"id": partition.id, "documentCount": count, "sizeInKB": size // 1024, "partitionKeys": []}
        )
    return statistics


def _reply(status: int, resource: Database | Container, request: Request | None = None) -> Reply:
    if request is not None and request.headers.get("if-none-match") == resource.etag:
        raise NotModified(resource.etag)
    reply = json_reply(status, resource.rendered(), etag=resource.etag)
    if isinstance(resource, Container):
        # The SDK for Java makes the path of the container of it, and reads no change feed without one.
        reply.headers |= owner_headers(resource.database.path, resource.database.rid)
    return reply


def _check_etag(request: Request, etag: str) -> None:
    wanted = request.headers.get("if-match")
    if wanted not in (None, "*", etag):
        raise PreconditionFailed()
