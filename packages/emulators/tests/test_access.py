"""Every HTTP port serves programs and its own pages, and nothing that a page of another site asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from outbox_relay.emulators.access import Access
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.admin import served
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer

FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://[evil"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example:8081"},
    {"Host": "[evil"},
]
OWN = [
    {},
    {"Host": "localhost"},
    {"Host": "192.0.2.7:5300"},
    {"Host": "[::1]:8081"},
    {"Sec-Fetch-Site": "none"},
]
FAULTS = {
    "cosmos": ("/admin/faults", {"kind": "throttle", "count": 1}),
    "servicebus": ("/admin/faults", {"kind": "server-busy", "entity": "orders", "count": 1}),
    "functions": ("/admin/crash", {"at": "before-invocation"}),
}


@asynccontextmanager
async def port_of(emulator: str) -> AsyncIterator[int]:
    if emulator == "cosmos":
        async with CosmosServer() as cosmos:
            yield cosmos.port
    elif emulator == "servicebus":
        async with ServiceBusServer(Entities(), websockets=True) as servicebus:
            yield servicebus.admin_port
    else:
        async with served(Host(Path(), {}), 0) as port:
            yield port


@pytest.fixture(params=FAULTS)
async def port(request: pytest.FixtureRequest) -> AsyncIterator[aiohttp.ClientSession]:
    async with port_of(request.param) as number, aiohttp.ClientSession(f"http://127.0.0.1:{number}") as http:
        yield http


@pytest.fixture
def emulator(request: pytest.FixtureRequest) -> str:
    name: str = request.node.callspec.params["port"]
    return name


async def test_pages_of_other_sites_are_refused_and_programs_served(
    port: aiohttp.ClientSession, emulator: str
) -> None:
    path, body = FAULTS[emulator]
    for headers in FOREIGN:
        async with port.post(path, json=body, headers=headers) as order:
            assert (order.status, (await order.text()).partition(":")[0]) == (403, "Refused"), headers
        for readable in ("/health", "/admin/edges", "/"):
            async with port.get(readable, headers=headers) as answer:
                assert answer.status == 403, headers
    for headers in OWN:
        async with port.get("/health", headers=headers) as answer:
            assert answer.status == 200, headers


async def test_a_page_of_another_site_opens_no_websocket() -> None:
    async with ServiceBusServer(Entities(), websockets=True) as server, aiohttp.ClientSession() as http:
        address = f"http://127.0.0.1:{server.admin_port}/$servicebus/websocket"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await http.ws_connect(address, protocols=["amqp"], origin="http://evil.example")
        async with http.ws_connect(address, protocols=["amqp"], origin=address.partition("/$")[0]):
            pass


@pytest.mark.parametrize("name", ["cosmos", "here.test", "PUBLIC.test"])
async def test_a_configured_name_is_served(name: str) -> None:
    options: dict[str, Any] = {"allowed_hosts": ["cosmos", "here.test"]}
    async with (
        CosmosServer(public_endpoint="https://public.test:8443/", **options) as cosmos,
        ServiceBusServer(Entities(), public_host="public.test", **options) as servicebus,
        aiohttp.ClientSession() as http,
    ):
        for number in (cosmos.port, servicebus.admin_port):
            headers = {"Host": f"{name}:{number}"}
            async with http.get(f"http://127.0.0.1:{number}/health", headers=headers) as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost", "http://localhost"),
        ("localhost:443", "https://localhost"),
        ("localhost:5443", "https://LOCALHOST:5443"),
        ("[::1]:7", "http://[::1]:7"),
    ],
)
def test_the_ports_own_page_is_served(host: str, origin: str) -> None:
    assert Access().refusal({"Host": host, "Origin": origin, "Sec-Fetch-Site": "same-origin"}) is None
