"""The latest events by stage, id and action: page, stream and JSON choose the same, and say the same of each."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from outbox_relay.operator.console.application import application
from outbox_relay.operator.console.backlog import KEPT, MOST
from outbox_relay.operator.console.model import EventState, Removal, Stage, Tracked
from outbox_relay.operator.console.page_query import STAGES, EventFilter, PageQuery
from outbox_relay.operator.console.server import loopback
from outbox_relay.operator.outcomes import Outcome
from tests.support.console_deployment import Deployment
from tests.support.console_view import InMemoryView, busy, committed, history, tracked
from tests.support.watchdog import WATCHDOG_S

Client = TestClient[web.Request, web.Application]

HOSTILE = '"><script>alert(1)</script>'


def removal(outcome: Outcome) -> Removal:
    return Removal(outcome, "2026-02-09T11:29:00+00:00", "message-too-large", "jo", "a test order")


def everything() -> InMemoryView:
    """A relay at work, with an event in each state, some of them before the latest fifty."""
    made = busy()
    earlier = [
        tracked(committed(number, action="ContactMerged"), Stage.COMMITTED, id=f"early-{number}")
        for number in range(1, 61)
    ]
    discarded = tracked(committed(61), Stage.DISCARDED, id="gone", removed=removal(Outcome.DISCARDED))
    released = tracked(committed(62), id="again", removed=removal(Outcome.RELEASED))
    parked = tracked(committed(63), Stage.PARKED, id="behind")
    expired = tracked(committed(64), Stage.EXPIRED, id="late")
    return InMemoryView(replace(made, earlier=[*earlier, discarded, released, parked, expired]), [history()])


@pytest.fixture
def view() -> InMemoryView:
    return everything()


@pytest.fixture
async def client(view: InMemoryView) -> AsyncIterator[Client]:
    async with TestClient(TestServer(application(view, loopback))) as started:
        yield started


def rows_of(page: str) -> list[tuple[str, str]]:
    """The id and the badge of each row of the recent events."""
    table = page.partition('<table class="recent">')[2].partition("</table>")[0]
    names = re.findall(r'<td class="cut" title="([^"]*)"><bdi>', table)
    return list(zip(names, re.findall(r'class="badge is-[a-z-]+">([a-z-]+)<', table), strict=True))


def chosen_from(view: InMemoryView, chosen: EventFilter) -> list[Tracked]:
    snapshot = view.latest
    return [each for each in (*snapshot.recent, *snapshot.earlier) if chosen.matches(each)][:MOST]


@pytest.mark.parametrize("stage", STAGES)
async def test_page_stream_and_json_choose_the_same_events_of_a_stage(
    client: Client, view: InMemoryView, stage: str
) -> None:
    page = await (await client.get("/", params={"stage": stage})).text()
    key = await (await client.get("/key", params={"key": "contact-1", "stage": stage})).text()
    state = await (await client.get("/state.json", params={"stage": stage})).json()
    async with asyncio.timeout(WATCHDOG_S), client.get("/stream", params={"stage": stage}) as response:
        streamed = await section(response, "recent")

    expected = [(each.id, str(each.state)) for each in chosen_from(view, EventFilter(stage))]
    assert expected
    assert [(each["id"], each["state"]) for each in state["recent"]] == expected
    assert rows_of(page) == rows_of(key) == rows_of(streamed) == expected
    assert {each for _, each in expected} == ({"accepted"} if stage == "released" else {stage})
    assert f"<option selected>{stage}</option>" in page


async def section(response: aiohttp.ClientResponse, name: str) -> str:
    lines: list[str] = []
    while line := (await response.content.readline()).decode().rstrip("\n"):
        lines.append(line)
        if line.startswith("retry"):
            lines, _ = [], await response.content.readline()
    return (
        "\n".join(each.removeprefix("data: ") for each in lines[1:])
        if lines[0] == f"event: {name}"
        else await section(response, name)
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("id=EARLY-7", ["early-7"]),
        ("id=early-&action=contactmerged&stage=committed", [f"early-{number}" for number in range(1, MOST + 1)]),
        ("id=gone&stage=discarded", ["gone"]),
        ("id=gone&stage=released", []),
        ("action=NothingOfTheKind", []),
        ("id=+again+&action=&stage=", ["again"]),
    ],
)
async def test_what_is_chosen_fulfils_all_that_is_asked(client: Client, query: str, found: list[str]) -> None:
    page = await (await client.get(f"/?{query}")).text()
    state = await (await client.get(f"/state.json?{query}")).json()

    assert [each for each, _ in rows_of(page)] == [each["id"] for each in state["recent"]] == found
    assert ("None of them matches." in page) == (found == [])
    assert "of the latest 114 events." in page


async def test_without_a_choice_the_latest_fifty_are_shown_and_no_more_are_sent(client: Client) -> None:
    page = await (await client.get("/?stage=&id=&action=")).text()
    state = await (await client.get("/state.json")).json()

    assert len(rows_of(page)) == len(state["recent"]) == MOST
    assert [(each["id"], each["state"]) for each in state["recent"]] == rows_of(page)
    assert "earlier" not in state
    assert 'sse-connect="/stream"' in page


@pytest.mark.parametrize("path", ["/", "/key?key=k", "/state.json", "/stream", "/events.json"])
async def test_a_stage_that_does_not_exist_is_answered_with_those_that_do(client: Client, path: str) -> None:
    async with client.get(path, params={"stage": HOSTILE, "key": "k"}) as answer:
        text = await answer.text()

    assert (answer.status, answer.content_type) == (400, "text/plain")
    assert ", ".join(STAGES) in text
    assert "script" not in text


async def test_the_page_keeps_what_was_asked_for_and_makes_nothing_of_it(client: Client) -> None:
    async with client.get("/key", params={"key": "k&x=1", "id": HOSTILE, "action": f"'{HOSTILE}\ud800"}) as answer:
        page = await answer.text()

    assert "<script>alert" not in page
    assert f'name="id" type="search" value="{html.escape(HOSTILE)}"'.replace("&quot;", "&#34;") in page
    assert 'name="key" value="k&amp;x=1"' in page
    [address] = re.findall(r'sse-connect="([^"]*)"', page)
    async with client.get(html.unescape(address)) as stream:
        assert stream.status == 200
    assert html.unescape(address).startswith("/stream?key=k%26x%3D1&id=%22%3E%3Cscript%3E")


async def test_events_are_streamed_from_when_they_are_among_those_chosen(
    client: Client, view: InMemoryView
) -> None:
    event = committed(1, action="ContactMerged")
    await view.set(recent=[tracked(event, Stage.COMMITTED), tracked(committed(2))])
    async with asyncio.timeout(WATCHDOG_S), client.get("/events.json?stage=quarantined") as response:
        while await response.content.readline() != b"event: now\n":
            pass
        await response.content.readline()
        await view.set(recent=[tracked(event, Stage.QUARANTINED), tracked(committed(2))])
        while not (line := await response.content.readline()).startswith(b"data: "):
            pass

    found = json.loads(line.removeprefix(b"data: "))
    assert (found["id"], found["state"]) == (event.id, "quarantined")


async def test_a_timeline_says_of_each_event_what_the_page_says(client: Client, view: InMemoryView) -> None:
    timeline = await (await client.get("/timeline.json?key=contact-1")).json()

    events = view.timelines["contact-1"].events
    assert [each["state"] for each in timeline["events"]] == [str(each.state) for each in events]
    assert {each["state"] for each in timeline["events"]} == {
        *("delivered", "quarantined", "dead-lettered", "accepted", "committed")
    }


def test_every_state_can_be_chosen_and_read_back_from_an_address() -> None:
    assert set(STAGES) == {*map(str, EventState), "released"}
    query = PageQuery(EventFilter("parked", "é&=", "a b"))
    assert query.encoded("k/1") == "?key=k%2F1&stage=parked&id=%C3%A9%26%3D&action=a+b"
    assert PageQuery().encoded() == ""
    assert not PageQuery.of({"stage": " ", "id": ""})


async def test_an_event_before_the_latest_fifty_is_found_with_its_fate() -> None:
    relayed = Deployment()
    for number in range(KEPT + 10):
        relayed.outbox.commit(f"e{number}", committed_at=1_000_000.0 + number / 1000)
    relayed.quarantine("e100")
    relayed.outbox.pass_all()

    snapshot = await relayed.observer.look()

    assert (len(snapshot.recent), len(snapshot.earlier)) == (MOST, KEPT - MOST)
    assert [each.id for each in (*snapshot.recent, *snapshot.earlier)] == [
        f"e{number}" for number in range(KEPT + 9, 9, -1)
    ]
    assert [each.id for each in EventFilter("quarantined").chosen(snapshot).recent] == ["e100"]
