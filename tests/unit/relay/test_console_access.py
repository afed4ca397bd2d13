"""Who may see the console, and what every response says to browsers."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from outbox_relay.operator.console.application import PAGES, application
from outbox_relay.operator.console.ports import Extension
from outbox_relay.operator.console.server import Access, access_for, loopback, platform_authentication
from relay.backends.findings import Finding
from tests.support.console_view import FINDINGS, InMemoryView, busy, history

Client = TestClient[web.Request, web.Application]

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRINCIPAL = base64.b64encode(json.dumps({"auth_typ": "aad", "claims": []}).encode()).decode()
SIGNED_IN = {"X-MS-CLIENT-PRINCIPAL": PRINCIPAL, "X-MS-CLIENT-PRINCIPAL-ID": "0a1b"}
# Without /state.json and the streams, which wait for news.
EVERY_PATH = ("/", "/key?key=contact-1", "/check", "/timeline.json?key=contact-1", "/static/console.js")


@asynccontextmanager
async def client_of(access: Access, *extensions: Extension) -> AsyncIterator[Client]:
    async def check() -> Sequence[Finding]:
        return FINDINGS

    app = application(InMemoryView(busy(), [history()]), access, check=check, extensions=extensions)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own() -> AsyncIterator[Client]:
    """A client of a console for this machine alone."""
    async with client_of(loopback) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def public() -> AsyncIterator[Client]:
    """A client of a console behind the platform's authentication."""
    async with client_of(platform_authentication) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def extended(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a console to which a part has added a form and a button."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "top.html").write_text('<form id="send">{{ name }}</form>')
    (folder / "subscription.html").write_text("<button>Peek {{ subscription.name }}</button>")
    (folder / "sent.html").write_text("<p>{{ text }}</p>")

    async def send(request: web.Request) -> web.Response:
        return web.Response(text=request.app[PAGES].fragment("local/sent.html", text="<sent>"))

    local = Extension("local", folder, [web.post("/send", send)], static=folder)
    async with client_of(loopback, local) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "127.8.9.1", "localhost:8080", "LocalHost", "[::1]:8080"]
)
async def test_on_this_machine_its_own_names_are_served(own: Client, host: str) -> None:
    for path in EVERY_PATH:
        assert (await own.get(path, headers={"Host": host})).status == 200, path


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "127.0.0.1.evil.test",
        "localhost.evil.test:8080",
        "10.0.0.4",
        "0.0.0.0",
        "127.0.0.1@evil.test",
        "[::2]",
        "",
    ],
)
async def test_on_this_machine_the_name_of_another_is_refused(own: Client, host: str) -> None:
    for path in (*EVERY_PATH, "/stream", "/events.json", "/state.json"):
        refused = await own.get(path, headers={"Host": host})
        assert refused.status == 403, path
        assert "http://localhost" in await refused.text()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-MS-CLIENT-PRINCIPAL-ID": "0a1b"},
        {"X-MS-CLIENT-PRINCIPAL": PRINCIPAL},
        SIGNED_IN | {"X-MS-CLIENT-PRINCIPAL-ID": " "},
        SIGNED_IN | {"X-MS-CLIENT-PRINCIPAL": "not base64"},
        SIGNED_IN | {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b"[1]").decode()},
        SIGNED_IN | {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b"[" * 5000).decode()},
        {"Host": "127.0.0.1", "X-Forwarded-For": "127.0.0.1"},
    ],
)
async def test_elsewhere_only_who_is_signed_in_sees_anything(public: Client, headers: dict[str, str]) -> None:
    for path in (*EVERY_PATH, "/stream", "/events.json", "/state.json", "/nothing"):
        refused = await public.get(path, headers=headers)
        assert refused.status == 401, path
        assert "X-MS-CLIENT-PRINCIPAL" in await refused.text()
    assert (await public.get("/", headers=SIGNED_IN)).status == 200


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("127.0.0.1", loopback),
        ("127.0.0.2", loopback),
        ("localhost", loopback),
        ("::1", loopback),
        ("0.0.0.0", platform_authentication),
        ("::", platform_authentication),
        ("10.1.2.3", platform_authentication),
        ("console.internal", platform_authentication),
        ("", platform_authentication),
    ],
)
async def test_the_address_alone_decides_who_may_see_it(host: str, wanted: Access) -> None:
    assert access_for(host) is wanted


async def test_it_only_reads(own: Client) -> None:
    assert own.app is not None
    methods = {route.method for route in own.app.router.routes()}

    assert methods == {"GET", "HEAD"}
    for path in EVERY_PATH:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert (await own.request(method, path)).status == 405, (method, path)


@pytest.mark.parametrize("path", [*EVERY_PATH, "/nothing", "/key", "/timeline.json"])
async def test_browsers_are_told_what_the_page_may_do(own: Client, path: str) -> None:
    headers = (await own.get(path, allow_redirects=False)).headers

    policy = headers["Content-Security-Policy"].split("; ")
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not [each for each in policy if "unsafe" in each or "*" in each or "http" in each]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == ("no-cache" if path.startswith("/static/") else "no-store")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "{own}"}, 200),
    ],
)
async def test_what_an_extension_changes_is_changed_from_the_page_alone(
    extended: Client, headers: dict[str, str], status: int
) -> None:
    address = str(extended.make_url("")).rstrip("/")

    answer = await extended.post(
        "/send", headers={name: value.replace("{own}", address) for name, value in headers.items()}
    )

    assert answer.status == status
    if status == 200:
        assert await answer.text() == "<p>&lt;sent&gt;</p>"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "target"),
    [
        ("cors", "empty"),
        ("no-cors", "image"),
        ("no-cors", "script"),
        ("navigate", "iframe"),
        ("no-cors", "document"),  # a page that is fetched in advance
        ("websocket", "empty"),
    ],
)
async def test_the_page_of_another_site_asks_for_nothing(own: Client, site: str, mode: str, target: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": target}

    for path in (*EVERY_PATH, "/stream", "/events.json", "/state.json"):
        for method in ("GET", "HEAD"):
            refused = await own.request(method, path, headers=headers)
            assert refused.status == 403, (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ],
    ids=["the page itself", "an address that was typed", "a link on another site", "a link on a site beside it"],
)
async def test_a_person_opens_the_page_from_anywhere(own: Client, headers: dict[str, str]) -> None:
    for path in EVERY_PATH:
        assert (await own.get(path, headers=headers)).status == 200, path


async def test_an_extension_has_blocks_in_the_page(extended: Client) -> None:
    page = await (await extended.get("/")).text()

    assert '<form id="send"></form>' in page
    assert "<button>Peek billing</button>" in page
    assert await (await extended.get("/static/local/top.html")).text() == '<form id="send">{{ name }}</form>'
