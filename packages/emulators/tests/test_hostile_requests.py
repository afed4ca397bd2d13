"""Requests that no client should send: each is the client's error, never the emulator's."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token

from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.admin import served
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.shorthand import entities_of
from outbox_relay.emulators.testing import RawClient
from tests.support.watchdog import WATCHDOG_S

DOCS = "/dbs/shop/colls/orders/docs"
DEEP = "[" * 100_000
DIGITS = "9" * 5000
KEY = {"x-ms-documentdb-partitionkey": '["a"]'}
QUERY = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "True", **KEY}
BATCH = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True", **KEY}
BULK = {"x-ms-cosmos-is-batch-request": "True", "x-ms-documentdb-partitionkeyrangeid": "0"}
ZIPPED = {"content-encoding": "gzip"}

Sent = tuple[str, str, dict[str, str], Any]


def query(expression: str) -> Sent:
    return "POST", DOCS, QUERY, json.dumps({"query": f"SELECT VALUE {expression} FROM c", "parameters": []})


def patched(**specification: Any) -> Sent:
    return "PATCH", f"{DOCS}/a", KEY, json.dumps(specification)


def container_with(policy: Any) -> Sent:
    body = {"id": "other", "partitionKey": {"paths": ["/pk"]}, "indexingPolicy": {"compositeIndexes": policy}}
    return "POST", "/dbs/shop/colls", {}, json.dumps(body)


SET = [{"op": "set", "path": "/x", "value": 1}]
COSMOS: list[Sent] = [
    ("POST", DOCS, KEY, DEEP),
    ("POST", DOCS, KEY | ZIPPED, '{"id": "b", "pk": "a"}'),
    ("GET", DOCS, {"x-ms-session-token": f"0:{DIGITS}"}, None),
    ("GET", DOCS, {"a-im": "Incremental Feed", "if-none-match": DIGITS, **BULK}, None),
    ("POST", "/dbs", {}, '{"id": "\\ud800"}'),
    ("POST", "/dbs", {"x-ms-cosmos-offer-autopilot-settings": '{"maxThroughput": 1e999}'}, '{"id": "other"}'),
    ("POST", "/dbs/shop/colls", {"x-ms-cosmos-offer-autopilot-settings": DEEP[:3000]}, '{"id": "other"}'),
    container_with(1),
    container_with([[1, 2]]),
    container_with([["path", "path"]]),
    ("POST", DOCS, BULK, '[{"operationType": "Create", "resourceBody": {"id": "q"}, "partitionKey": 1}]'),
    ("POST", DOCS, BATCH, '[{"operationType": "Read", "id": "a", "ifMatch": 1}]'),
    patched(operations=[{"op": "add", "path": f"/list/{DIGITS}", "value": 1}]),
    patched(condition="from c where COUNT(1) = 1", operations=SET),
    query("MAX(MIN(c.n))"),
    query("~1e400"),
    query(DIGITS),
    query("[" * 3000 + "]" * 3000),
    ("POST", "/admin/split", {}, DEEP),
    ("POST", "/admin/split", {}, '{"database": "shop", "container": "orders", "range": 1}'),
    ("POST", "/admin/split", ZIPPED, "{}"),
    ("POST", "/admin/faults", {}, DEEP),
    ("GET", f"/admin/faults/{DIGITS}", {}, None),
]


def client(port: int | None = None) -> aiohttp.ClientSession:
    """One that connects for each request, as the emulators close connections whose bodies they cannot read."""
    base = None if port is None else f"http://127.0.0.1:{port}"
    return aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(force_close=True))


@pytest.fixture
async def offer_and_client() -> AsyncIterator[tuple[str, RawClient]]:
    async with CosmosServer() as server, client() as session:
        provision(server.account, [ContainerSpec.parse("shop/orders:/pk")])
        raw = RawClient(session, server.endpoint, server.key)
        await raw.send("POST", DOCS, headers=KEY, body='{"id": "a", "pk": "a", "n": 1, "list": [1]}')
        [offer] = (await raw.send("GET", "/offers")).body["Offers"]
        yield offer["id"], raw


async def test_cosmos_db_blames_the_client(offer_and_client: tuple[str, RawClient]) -> None:
    offer, raw = offer_and_client
    autoscale: Sent = ("PUT", f"/offers/{offer}", {}, '{"content": {"offerAutopilotSettings": 1}}')
    for method, path, headers, body in [*COSMOS, autoscale]:
        answer = await raw.send(method, path, headers=headers, body=body)
        assert 400 <= answer.status < 500, (method, path, headers, str(body)[:100], answer.text[:300])


async def test_an_invalid_regular_expression_matches_nothing(offer_and_client: tuple[str, RawClient]) -> None:
    _, raw = offer_and_client
    for pattern in ("(", "a{99999999999}"):
        method, path, headers, body = query(f"REGEXMATCH('a', '{pattern}')")
        answer = await raw.send(method, path, headers=headers, body=body)
        assert (answer.status, answer.body["Documents"]) == (200, [])


async def test_a_body_without_end_is_not_read_to_its_end(offer_and_client: tuple[str, RawClient]) -> None:
    _, raw = offer_and_client
    answer = await raw.send("POST", DOCS, headers=KEY, body=b" " * (5 << 20))
    assert answer.status == 413


ADMIN: list[Sent] = [
    ("POST", "/admin/faults", {}, DEEP),
    ("POST", "/admin/faults", {"content-type": "application/json; charset=bogus"}, "{}"),
    ("POST", "/admin/refuse", ZIPPED, "{}"),
    ("GET", f"/admin/faults/{DIGITS}", {}, None),
    ("GET", f"/admin/entities/orders/messages?after={DIGITS}", {}, None),
]
ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
    "<LockDuration>{}</LockDuration></QueueDescription></content></entry>"
)
MANAGEMENT = [
    ('<?xml version="1.0" encoding="bogus"?><a/>', {}),
    (ENTRY.format(f"P{DIGITS}D"), {}),
    (ENTRY.format("PT1M"), ZIPPED),
]


async def sent(http: aiohttp.ClientSession, request: Sent) -> int:
    method, path, headers, body = request
    async with asyncio.timeout(WATCHDOG_S), http.request(method, path, headers=headers, data=body) as answer:
        return answer.status


async def test_service_bus_blames_the_client() -> None:
    async with (
        ServiceBusServer(entities_of(["orders"], [])) as server,
        client(server.admin_port) as http,
    ):
        token = generate_sas_token("http://127.0.0.1/", KEY_NAME, DEFAULT_KEY, int(time.time()) + 60)  # type: ignore[no-untyped-call]
        requests = [
            ("PUT", "/bills?api-version=2021-05", {"Authorization": token, **headers}, body)
            for body, headers in MANAGEMENT
        ]
        for request in [*ADMIN, *requests]:
            assert 400 <= await sent(http, request) < 500, request[:3]


async def test_the_functions_host_blames_the_client() -> None:
    async with served(Host(Path(), {}), 0) as port, client(port) as http:
        for body, headers in ((DEEP, {}), ("1", {"content-type": "text/plain; charset=bogus"}), ("{}", ZIPPED)):
            for path in ("/admin/steal", "/admin/crash"):
                assert await sent(http, ("POST", path, headers, body)) == 400, (path, headers)
