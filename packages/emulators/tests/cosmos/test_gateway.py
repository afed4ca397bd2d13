"""Signatures, paths, methods, the server's own endpoints, and the account under another name."""

from __future__ import annotations

import json
import logging
from typing import Any

import aiohttp
import pytest
from azure.core.pipeline import PipelineRequest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.program import PROGRAM
from outbox_relay.emulators.testing import RawClient
from packages.emulators.tests.cosmos.support import CosmosProcess, cannot_start
from packages.emulators.tests.forwarder import forwarded

DOCS = "/dbs/outbox/colls/data/docs"
OTHER_KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


async def test_a_wrong_key_is_unauthorized(server: CosmosServer) -> None:
    wrong = CosmosClient(server.endpoint, OTHER_KEY)
    try:
        with pytest.raises(CosmosHttpResponseError) as caught:
            await wrong.__aenter__()
    finally:
        await wrong.close()

    assert caught.value.status_code == 401
    assert "payload to sign" in caught.value.message


async def test_the_configured_key_is_the_one_that_counts() -> None:
    async with CosmosServer(key=OTHER_KEY) as server, CosmosClient(server.endpoint, OTHER_KEY) as client:
        assert await client.create_database("db")


async def test_a_request_without_a_signature_is_unauthorized(raw: RawClient) -> None:
    answer = await raw.send("GET", "/dbs", sign=False)

    assert answer.status == 401
    assert answer.body["code"] == "Unauthorized"


@pytest.mark.parametrize(
    "token", ["", "nonsense", "type%3daad%26ver%3d1.0%26sig%3dx", "type%3dmaster%26ver%3d1.0"]
)
async def test_any_other_token_is_unauthorized(raw: RawClient, token: str) -> None:
    answer = await raw.send("GET", "/dbs", sign=False, headers={"authorization": token})

    assert answer.status == 401


async def test_a_signature_covers_verb_resource_and_date(raw: RawClient) -> None:
    wrong_date = {"x-ms-date": "Thu, 01 Jan 1970 00:00:00 GMT"}

    assert (await raw.send("GET", "/dbs", headers=wrong_date)).status == 401


async def test_names_beyond_ascii_are_signed_and_found(client: CosmosClient) -> None:
    database = await client.create_database("Prüfung 1")
    container = await database.create_container("コンテナ", PartitionKey(path="/pk"))

    await container.create_item({"id": "ключ &%+", "pk": "é"})

    assert (await container.read_item("ключ &%+", "é"))["id"] == "ключ &%+"


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/dbs/outbox/nothing", 404),
        ("GET", "/dbs/none", 404),
        ("GET", "/dbs/outbox/colls/none", 404),
        ("GET", "/dbs/outbox/colls/data/docs/1/attachments", 404),
        ("PUT", "/dbs", 405),
        ("DELETE", "/dbs/outbox/colls/data/pkranges", 405),
        ("PATCH", "/dbs/outbox/colls/data", 405),
        ("POST", "/dbs/outbox/users", 400),
        ("GET", "/dbs/outbox/colls/data/sprocs", 400),
        ("GET", "/dbs/outbox/colls/data/triggers/x", 400),
        ("POST", "/dbs/outbox/colls/data/docs", 400),
    ],
)
async def test_what_is_not_served_is_refused_in_the_services_way(
    raw: RawClient, method: str, path: str, status: int
) -> None:
    answer = await raw.send(method, path)

    assert answer.status == status
    assert set(answer.body) == {"code", "message"}
    assert answer.headers["x-ms-activity-id"] in answer.body["message"]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b'{"id":"1","pk":"a"} more', b"\xff\xfe", b'{"id":"1","n":NaN}']
)
async def test_a_malformed_item_is_a_bad_request(raw: RawClient, body: bytes) -> None:
    key = {"x-ms-documentdb-partitionkey": '["a"]'}

    answer = await raw.send("POST", "/dbs/outbox/colls/data/docs", headers=key, body=body)

    assert (answer.status, answer.body["code"]) == (400, "BadRequest")


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("key", [None, "", "nonsense", '"a"', "[]", '["a","b"]', "[1e999]"])
async def test_a_malformed_partition_key_is_a_bad_request(raw: RawClient, key: str | None) -> None:
    headers = {} if key is None else {"x-ms-documentdb-partitionkey": key}

    answer = await raw.send("POST", "/dbs/outbox/colls/data/docs", headers=headers, body='{"id":"1","pk":"a"}')

    assert answer.status == 400


async def test_triggers_are_refused_rather_than_skipped(container: ContainerProxy) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await container.create_item({"id": "1", "pk": "a"}, pre_trigger_include="validate")

    assert caught.value.status_code == 400


async def test_a_recreated_container_is_distinguished_from_its_predecessor(client: CosmosClient) -> None:
    database = await client.create_database("db")
    container = await database.create_container("c", PartitionKey(path="/pk"))
    await container.create_item({"id": "1", "pk": "a"})

    await database.delete_container("c")
    await database.create_container("c", PartitionKey(path="/pk"))

    await container.create_item({"id": "1", "pk": "a"})
    assert [item["id"] async for item in container.read_all_items()] == ["1"]


async def test_a_fault_in_the_server_is_an_internal_server_error(
    raw: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Account, request: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Account, "container_of", fail)
    with caplog.at_level(logging.CRITICAL):
        answer = await raw.send("GET", "/dbs/outbox/colls/data")

    assert (answer.status, answer.body["code"]) == (500, "InternalServerError")


async def test_health_and_counts_need_no_signature(server: CosmosServer, container: ContainerProxy) -> None:
    await container.create_item({"id": "1", "pk": "a"})

    async with aiohttp.ClientSession(server.endpoint) as session:
        async with session.get("/health") as health, session.get("/admin/counts") as counts:
            assert health.status == 200
            assert await counts.json() == {"outbox": {"data": 1}}
        async with session.get("/admin/other") as other, session.post("/admin/counts") as posted:
            assert (other.status, posted.status) == (404, 405)


async def test_a_client_in_direct_mode_is_told_to_use_gateway_mode(raw: RawClient) -> None:
    path = "//addresses/?$resolveFor=dbs%2foutbox%2fcolls%2fdata%2fdocs&$filter=protocol%20eq%20rntbd"

    answer = await raw.send("GET", path, sign=False, encoded=True)

    assert (answer.status, answer.body["code"]) == (400, "BadRequest")
    assert "ConnectionMode = ConnectionMode.Gateway" in answer.body["message"]
    assert "gatewayMode()" in answer.body["message"]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("version", ["latest", "2020-13-01", "2020-07", "2015-01-01"])
async def test_a_version_of_the_api_that_cannot_be_is_refused(raw: RawClient, version: str) -> None:
    answer = await raw.send("GET", "/dbs/outbox", headers={"x-ms-version": version})

    assert answer.status == 400
    assert version in answer.body["message"]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "named"),
    [
        ("POST", "/dbs/outbox/clientencryptionkeys", {}, b"{}", "Always Encrypted"),
        ("POST", "/dbs/outbox/colls", {}, b'{"id": "x", "clientEncryptionPolicy": {"a": 1}}', "Always Encrypted"),
        ("POST", "/dbs/outbox/colls", {}, b'{"id": "x"}', "a container needs a partitionKey"),
        ("POST", DOCS, {"x-ms-documentdb-partitionkey": '["a"]'}, b"\x80\xe1\x00", "binary JSON"),
        ("POST", DOCS, {"x-ms-documentdb-partitionkey": '["a"]'}, b"\x81\xf1\xd8\xff\x7f", "HybridRow"),
        ("GET", DOCS, {"x-ms-enumeration-direction": "Reverse"}, None, "in reverse"),
    ],
    ids=["encryption keys", "encryption policy", "no partition key", "binary JSON", "HybridRow", "reverse feed"],
)
async def test_what_newer_clients_may_ask_for_is_refused_by_its_name(
    raw: RawClient, method: str, path: str, headers: dict[str, str], body: bytes | None, named: str
) -> None:
    answer = await raw.send(method, path, headers=headers, body=body)

    assert answer.status == 400
    assert named in answer.body["message"]


# As azure-cosmos-dotnet-v3 expects of the service: HeadersValidationTests.cs, and CosmosItemTests.cs of the
# continuation limit.
@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("name", "valid", "invalid"),
    [
        ("x-ms-indexing-directive", "Exclude", '"Invalid Value"'),
        ("x-ms-documentdb-query-enable-scan", "true", "Not a boolean"),
        ("x-ms-documentdb-query-enable-low-precision-order-by", "true", "Not a boolean"),
        ("x-ms-documentdb-query-emit-traces", "False", "Not a boolean"),
        ("x-ms-documentdb-content-serialization-format", "JsonText", "Not a valid value"),
        ("x-ms-documentdb-content-serialization-format", "JsonText", "CosmosBinary"),
        ("x-ms-consistency-level", "BoundedStaleness", "Unknown"),
        ("x-ms-documentdb-responsecontinuationtokenlimitinkb", "1", "0"),
        ("x-ms-documentdb-responsecontinuationtokenlimitinkb", "1", "few"),
        ("x-ms-max-item-count", "20", '"Invalid header type"'),
        ("x-ms-max-item-count", "20", "-2"),
        ("x-ms-max-item-count", "20", "9223372036854775807"),
    ],
)
async def test_a_header_with_a_value_that_it_cannot_have_is_refused(
    raw: RawClient, name: str, valid: str, invalid: str
) -> None:
    assert (await raw.send("GET", "/dbs", headers={name: valid})).status == 200

    answer = await raw.send("GET", "/dbs", headers={name: invalid})

    assert answer.status == 400
    assert name in answer.body["message"]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("0", "continuation token limit specified is not large enough"),
        ("-1", "Please pass in a valid continuation token size limit which must be a positive integer"),
    ],
)
async def test_a_query_whose_continuation_may_have_no_size_is_refused_in_the_services_words(
    raw: RawClient, limit: str, words: str
) -> None:
    """CosmosItemTests.cs (NegativeQueryTest) and QueryTests.cs of azure-cosmos-dotnet-v3 look for them."""
    headers = {
        "content-type": "application/query+json",
        "x-ms-documentdb-isquery": "True",
        "x-ms-documentdb-query-enablecrosspartition": "True",
        "x-ms-max-item-count": "10",
    }
    body = '{"query":"SELECT r.id FROM root r WHERE r._ts > 0"}'
    name = "x-ms-documentdb-responsecontinuationtokenlimitinkb"

    answer = await raw.send("POST", DOCS, headers={**headers, name: limit}, body=body)
    served = await raw.send("POST", DOCS, headers={**headers, name: "1"}, body=body)

    assert (answer.status, words in answer.body["message"], served.status) == (400, True, 200)


@pytest.mark.parametrize("formats", ["CosmosBinary", "JsonText, CosmosBinary", "Json,Text", ",,"])
async def test_a_client_that_could_read_binary_json_is_answered_in_text(
    container: ContainerProxy, raw: RawClient, formats: str
) -> None:
    await container.create_item({"id": "1", "pk": "a"})

    answer = await raw.send(
        "GET",
        f"{DOCS}/1",
        headers={
            "x-ms-documentdb-partitionkey": '["a"]',
            "x-ms-cosmos-supported-serialization-formats": formats,
        },
    )

    assert (answer.status, answer.body["id"]) == (200, "1")


async def test_the_texts_of_404_and_412_are_the_services(container: ContainerProxy, raw: RawClient) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    key = {"x-ms-documentdb-partitionkey": '["a"]'}

    missing = await raw.send("GET", f"{DOCS}/2", headers=key)
    stale = await raw.send("DELETE", f"{DOCS}/1", headers={**key, "if-match": "other"})

    assert missing.body["message"].startswith(
        'Message: {"Errors":["Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found"]}\r\n'
        "ActivityId: "
    )
    assert missing.body["message"].endswith("Request URI: /dbs/outbox/colls/data/docs/2")
    assert stale.body["message"].startswith(
        'Message: {"Errors":["One of the specified pre-condition is not met. Learn more: '
        'https://aka.ms/CosmosDB/sql/errors/precondition-failed"]}\r\n'
    )


async def test_what_a_container_may_hold_and_holds_is_in_the_headers(
    container: ContainerProxy, raw: RawClient
) -> None:
    headers: list[Any] = []
    await container.create_item(
        {"id": "1", "pk": "a", "text": "x" * 3000}, response_hook=lambda got, _: headers.append(got)
    )
    read = await raw.send("GET", "/dbs/outbox/colls/data", headers={"x-ms-documentdb-populatequotainfo": "True"})

    assert headers[0]["x-ms-resource-quota"] == read.headers["x-ms-resource-quota"]
    assert "documentsCount=-1;" in read.headers["x-ms-resource-quota"]
    assert read.headers["x-ms-resource-usage"].startswith("documentSize=0;documentsSize=2;documentsCount=1;")
    assert "x-ms-resource-usage" in headers[0]


# The account behind a mapped port or under another name: clients stay where they can reach it


PUBLIC = "https://cosmos.test:8443/"


async def account_of(endpoint: str, key: str, host: str | None = None) -> dict[str, Any]:
    """The account document, as a client gets it that sends this Host header."""
    async with aiohttp.ClientSession() as session:
        client = RawClient(session, endpoint, key)
        answer = await client.send("GET", "/", headers={"Host": host} if host else None)
    found: dict[str, Any] = json.loads(answer.text)
    return found


def endpoints(account: dict[str, Any]) -> set[str]:
    return {
        location["databaseAccountEndpoint"]
        for kind in ("writableLocations", "readableLocations")
        for location in account[kind]
    }


async def test_a_client_stays_on_the_mapped_port(server: CosmosServer) -> None:
    asked: list[str] = []

    def note(request: PipelineRequest[Any]) -> None:
        asked.append(request.http_request.url)

    async with forwarded(server.port) as port:
        mapped = f"http://127.0.0.1:{port}/"
        async with CosmosClient(mapped, server.key, raw_request_hook=note) as client:
            database = await client.create_database("shop")
            orders = await database.create_container("orders", PartitionKey(path="/pk"))
            await orders.create_item({"id": "1", "pk": "a"})

            assert (await orders.read_item("1", "a"))["id"] == "1"
            assert [item["id"] async for item in orders.query_items("SELECT * FROM c", partition_key="a")] == ["1"]
            changes = orders.query_items_change_feed(start_time="Beginning")
            assert [item["id"] async for item in changes] == ["1"]

    assert len(asked) >= 6
    assert [url for url in asked if not url.startswith(mapped)] == []


async def test_the_account_names_the_endpoint_that_the_client_asked() -> None:
    async with CosmosServer(allowed_hosts=["cosmos"]) as server:
        assert endpoints(await account_of(server.endpoint, server.key)) == {server.endpoint}
        assert endpoints(await account_of(server.endpoint, server.key, "cosmos:18081")) == {"http://cosmos:18081/"}
        assert endpoints(await account_of(server.endpoint, server.key, "[::1]:8081")) == {"http://[::1]:8081/"}


async def test_a_process_serves_every_address_names_the_public_endpoint_and_takes_a_seed() -> None:
    options = ("--host", "0.0.0.0", "--public-endpoint", "https://cosmos.test:8443", "--edges", "42")
    async with CosmosProcess.start(*options) as process:
        own = f"http://127.0.0.1:{process.details['port']}/"
        key = process.details["connection_string"].partition("AccountKey=")[2].rstrip(";")

        assert process.details["endpoint"] == PUBLIC
        assert endpoints(await account_of(own, key)) == {PUBLIC}
        async with aiohttp.ClientSession(own) as session, session.get("/admin/edges") as edges:
            assert await edges.json() == {"seed": 42, "edges": {}}


@pytest.mark.parametrize(
    ("host", "name"), [("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost")]
)
async def test_the_connection_string_is_one_that_this_machine_reaches(host: str, name: str) -> None:
    server = CosmosServer(host=host)
    try:
        await server.start()
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    try:
        assert server.connection_string.startswith(f"AccountEndpoint=http://{name}:{server.port}/;")
        assert endpoints(await account_of(server.endpoint, server.key)) == {server.endpoint}
    finally:
        await server.stop()


def test_the_default_address_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    def default() -> str:
        host: str = PROGRAM.parse(["cosmos"]).options["options"].host
        return host

    monkeypatch.delenv("EMULATORS_HOST", raising=False)
    assert default() == "127.0.0.1"
    monkeypatch.setenv("EMULATORS_HOST", "0.0.0.0")
    assert default() == "0.0.0.0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", ""], "--host"),
        (["--public-endpoint", "cosmos:8081"], "https://cosmos.test:8443/"),
        (["--public-endpoint", "http://cosmos/path"], "http://cosmos/path"),
    ],
)
async def test_an_address_that_is_wrong_is_named(arguments: list[str], message: str) -> None:
    code, errors = await cannot_start(*arguments)

    assert code != 0
    assert message in errors
