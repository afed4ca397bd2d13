"""The console of several streams over HTTP: a line for each, a page for each, and one that cannot be read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from outbox_relay.operator.console.application import application_of_streams
from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.freshness import FIGURES
from outbox_relay.operator.console.model import Known, Problem, Snapshot
from outbox_relay.operator.console.overview import StreamView
from outbox_relay.operator.console.server import loopback
from relay.backends.findings import Finding
from relay.core.remedy import Invocation
from tests.support.console_view import FINDINGS, NOON, InMemoryView, busy, history
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.test_console_web import messages

Client = TestClient[web.Request, web.Application]

# Eleven thirty, plus a second.
SINCE = "stale since 11:30:01"


def calm() -> Snapshot:
    """A relay with nothing to do."""
    found = busy()
    flow = replace(found.flow, waiting=0, lag_s=0.0, quarantined=0, parked=0)
    subscriptions = [replace(each, dead_lettered=0) for each in found.subscriptions]
    return replace(found, flow=flow, subscriptions=subscriptions, quarantine=(), dead_letters=())


def unreadable() -> Snapshot:
    """A relay of which nothing can be read any more, neither its outbox nor its queue."""
    problems = [Problem("outbox", "ORDERS_BUS: no route to host"), Problem("subscriptions", "no route to host")]
    return replace(calm(), number=1, known=dict.fromkeys(FIGURES, Known(NOON + 1, stale=True)), problems=problems)


@pytest.fixture
def views() -> dict[str, InMemoryView]:
    return {
        "default": InMemoryView(calm()),
        "contacts": InMemoryView(busy(), [history()]),
        "orders": InMemoryView(unreadable()),
    }


@pytest.fixture
def runs() -> list[int]:
    """An element for each check that was run."""
    return []


@pytest.fixture
async def client(views: dict[str, InMemoryView], runs: list[int]) -> AsyncIterator[Client]:
    streams = [
        StreamView(name, "container 'data'", f"topic '{name}'", view, Commands(Invocation(stream=name)))
        for name, view in views.items()
    ]

    async def check() -> Sequence[Finding]:
        runs.append(1)
        return FINDINGS

    async with TestClient(TestServer(application_of_streams(streams, loopback, check=check))) as started:
        yield started


async def test_each_stream_has_a_line_of_its_own_state(client: Client, views: dict[str, InMemoryView]) -> None:
    found = (await (await client.get("/state.json")).json())["streams"]
    page = await (await client.get("/")).text()

    assert [(each["name"], each["status"]["level"], each["stale_since"]) for each in found] == [
        ("default", "ok", ""),
        ("contacts", "warning", ""),
        ("orders", "warning", SINCE),
    ]
    assert [each["snapshot"]["flow"]["quarantined"] for each in found] == [0, 4, 0]
    assert page.count(SINCE) == 2
    assert "orders: stale since 11:30:01" in page
    assert page.count("ORDERS_BUS: no route to host") == 1
    # What was known of it is grey and has its time: waiting, lag, quarantined and dead letters.
    assert page.count('<p class="since">known at') == 4
    assert "2 of 3 streams need attention: contacts, orders." in page

    await views["contacts"].show(replace(calm(), number=7))
    assert "1 of 3 streams needs attention: orders." in await (await client.get("/")).text()
    await views["orders"].show(replace(calm(), number=7))
    assert "None of the 3 streams needs attention." in await (await client.get("/")).text()


async def test_the_headline_says_nothing_of_events_that_no_topic_has(
    client: Client, views: dict[str, InMemoryView]
) -> None:
    flow = replace(calm().flow, committed=3, published=1)
    await views["default"].show(replace(calm(), number=7, flow=flow))
    await views["contacts"].show(replace(calm(), number=7, flow=replace(flow, waiting=2)))
    await views["orders"].show(replace(calm(), number=7, flow=replace(flow, published=3)))

    found = [each["status"]["text"] for each in (await (await client.get("/state.json")).json())["streams"]]
    async with client.get("/") as answer:
        [said] = re.findall(r'<span class="hidden">ok: </span><span>([^<]*)</span>', await answer.text())

    assert found == [
        "No event waits. 2 events were discarded, or expired.",
        "2 events on the way to the topic.",
        "Every committed event has been accepted by the topic.",
    ]
    assert said == "None of the 3 streams needs attention."


async def test_the_overview_follows_each_stream(client: Client, views: dict[str, InMemoryView]) -> None:
    async with asyncio.timeout(WATCHDOG_S), client.get("/stream") as response:
        stream = messages(response)
        first = {event: html async for event, html in _until(stream, "totals")}
        await views["default"].count(waiting=7, lag_s=61.0)
        second = dict([await anext(stream), await anext(stream)])

    assert first.keys() == {"headline", "streams", "totals"}
    assert second.keys() == {"headline", "streams"}
    assert "7 events wait, the oldest for 1" in (second["streams"] or "")


async def _until(
    stream: AsyncIterator[tuple[str | None, str]], last: str
) -> AsyncIterator[tuple[str | None, str]]:
    async for event, html in stream:
        yield event, html
        if event == last:
            return


async def test_the_page_of_a_stream_is_about_that_stream_alone(client: Client) -> None:
    page = await (await client.get("/streams/contacts/")).text()
    key = await (await client.get("/streams/contacts/key?key=contact-1")).text()
    state = await (await client.get("/streams/orders/state.json")).json()

    assert "contacts → topic &#39;contacts&#39;</title>" in page
    assert 'sse-connect="/streams/contacts/stream"' in page
    assert 'href="/streams/contacts/key?key=contact-' in page
    assert 'href="/key' not in page
    assert "quarantine release --stream contacts --reason=message-too-large" in page
    assert '<a href="/streams/contacts/" aria-current="page">' in page
    assert '<a href="/">All streams</a>' in page
    assert 'sse-connect="/streams/contacts/stream?key=contact-1"' in key
    assert 'class="close" href="/streams/contacts/"' in key
    assert state["problems"][0]["text"] == "ORDERS_BUS: no route to host"
    assert (await client.get("/streams/nobody/")).status == 404
    closed = await client.get("/streams/contacts/key", allow_redirects=False)
    assert closed.headers["Location"] == "/streams/contacts/"


async def test_one_check_is_that_of_all_streams(client: Client, runs: list[int]) -> None:
    for path in ("/check", "/streams/contacts/check"):
        async with client.get(path, headers={"HX-Request": "true"}) as answer:
            assert "Checked at" in await answer.text()

    assert runs == [1]
    assert 'action="/streams/orders/check"' in await (await client.get("/streams/orders/")).text()


async def test_nobody_else_sees_a_page_of_a_stream(client: Client) -> None:
    async with client.get("/streams/contacts/", headers={"Host": "elsewhere.test"}) as refused:
        assert refused.status == 403
    async with client.get("/streams/contacts/state.json") as answer:
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
