"""The console over HTTP, without a browser: JSON, streams, checks, and its end."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from outbox_relay.operator.cli.main import PROGRAM
from outbox_relay.operator.console.application import Checks, application
from outbox_relay.operator.console.formatting import marked
from outbox_relay.operator.console.model import Flow, Partition, Snapshot, Stage, Timeline
from outbox_relay.operator.console.pages import ConsoleSettings
from outbox_relay.operator.console.server import loopback, serving
from outbox_relay.operator.console.status import Headline
from outbox_relay.operator.console.stream import message
from outbox_relay.operator.reasons import QUARANTINE, RUNBOOK, STATES, State
from relay.backends.findings import Finding, Level
from relay.core.errors import UsageError
from relay.core.events import Reason
from tests.support.console_view import FINDINGS, NOON, InMemoryView, busy, committed, delivered, history, tracked
from tests.support.watchdog import WATCHDOG_S

Client = TestClient[web.Request, web.Application]


@pytest.fixture
def view() -> InMemoryView:
    return InMemoryView(busy(), [history()])


@pytest.fixture
async def client(view: InMemoryView) -> AsyncIterator[Client]:
    async with TestClient(TestServer(application(view, loopback))) as started:
        yield started


async def messages(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str | None, str]]:
    """The event and the data of each message of a stream; heartbeats are left out."""
    event, data = None, []
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and data:
            yield event, "\n".join(data)
            event, data = None, []


async def test_the_state_is_there_as_json(client: Client, view: InMemoryView) -> None:
    await view.count(committed=5)
    state = await (await client.get("/state.json")).json()

    assert state["flow"]["committed"] == 5
    assert state["flow"]["latency_p99_ms"] == 212
    assert [each["name"] for each in state["subscriptions"]] == ["all", "billing", "search"]
    assert state["recent"][0]["stage"] == "committed"
    assert state["quarantine"][0]["examples"][0]["reason"] == "message-too-large"


async def test_a_timeline_is_there_as_json_without_data(client: Client) -> None:
    timeline = await (await client.get("/timeline.json", params={"key": "contact-1", "limit": "2"})).json()

    assert [each["event"]["sequence"] for each in timeline["events"]] == [7, 8]
    assert timeline["more"] is True
    whole = await (await client.get("/timeline.json", params={"key": "contact-1"})).json()
    assert {each["data"] for each in whole["events"]} == {None}
    assert whole["events"][3]["deliveries"][1]["arrival"] == "dead-lettered"


@pytest.mark.parametrize(
    "query", ["", "key=", "key=a&limit=0", "key=a&limit=1001", "key=a&limit=x", "key=a&limit=-1"]
)
async def test_a_wrong_question_about_a_timeline_is_answered_with_what_is_wrong(
    client: Client, query: str
) -> None:
    answer = await client.get(f"/timeline.json?{query}")

    assert answer.status == 400
    assert "key" in await answer.text() or "limit" in await answer.text()


async def test_an_outbox_that_cannot_be_read_is_named_in_the_timeline(client: Client, view: InMemoryView) -> None:
    view.fails = True

    page = await client.get("/key", params={"key": "contact-1"})
    document = await client.get("/timeline.json", params={"key": "contact-1"})

    assert page.status == document.status == 200
    assert "the outbox cannot be read: it is away" in await page.text()
    assert "it is away" in (await document.json())["problems"][0]["text"]


@pytest.mark.parametrize(("number", "more"), [(2, ""), (1025, ", and 1\u202f023 more")])
async def test_parked_keys_are_links_to_their_timelines(
    client: Client, view: InMemoryView, number: int, more: str
) -> None:
    await view.set(flow=Flow(NOON, parked=number), quarantine=[], parked_keys=["a&b <1>", "c"])

    section = (await (await client.get("/")).text()).partition('id="quarantine"')[2].partition("</section>")[0]

    assert re.findall('<a class="mono" href="([^"]+)"', section) == ["/key?key=a%26b%20%3C1%3E", "/key?key=c"]
    assert "<bdi>a&amp;b &lt;1&gt;</bdi></a>, <a" in section
    assert f"<bdi>c</bdi></a>{more}.</p>" in section
    assert "Empty." not in section
    await view.set(flow=Flow(NOON, parked=0), parked_keys=[])
    assert "Parked keys:" not in await (await client.get("/")).text()


@pytest.mark.parametrize(("query", "opened"), [("", False), ("&stage=accepted", True), ("&record=r1", True)])
async def test_an_open_timeline_folds_the_rest_of_the_page_unless_its_query_chooses_there(
    client: Client, query: str, opened: bool
) -> None:
    page = await (await client.get(f"/key?key=contact-1{query}")).text()

    above, _, whole = page.partition("<summary>The whole stream</summary>")
    assert above.rstrip().endswith('<details class="whole" open>' if opened else '<details class="whole">')
    for shown in ('sse-swap="headline"', 'sse-swap="problems"', 'id="timeline"'):
        assert shown in above
        assert shown not in whole
    for folded in ("flow", "history", "recent", "partitions", "quarantine", "removals", "dead-letters"):
        assert f'id="{folded}"' in whole
    assert "The whole stream" not in await (await client.get("/")).text()


@pytest.mark.parametrize("shown", [False, True])
async def test_the_data_of_events_is_shown_only_where_it_is_asked_for(view: InMemoryView, shown: bool) -> None:
    app = application(view, loopback, settings=ConsoleSettings(show_data=shown))
    async with TestClient(TestServer(app)) as client:
        page = await (await client.get("/key?key=contact-1")).text()
        document = await (await client.get("/timeline.json?key=contact-1")).text()

    assert ("Jane" in page) is shown
    assert ("Jane" in document) is shown


async def test_the_stream_sends_a_section_again_only_when_it_has_changed(
    client: Client, view: InMemoryView
) -> None:
    async with asyncio.timeout(WATCHDOG_S), client.get("/stream") as response:
        assert response.content_type == "text/event-stream"
        stream = messages(response)
        first = [event async for event, _ in _until(stream, "totals")]
        await view.count(committed=1)
        second = [await anext(stream)]
        await view.count(quarantined=0)
        second += [await anext(stream) for _ in range(2)]

    assert len(first) == len(set(first)) == 16
    assert [event for event, _ in second] == ["committed", "headline", "measures"]
    assert '<p class="big">1</p>' in second[0][1]


async def _until(
    stream: AsyncIterator[tuple[str | None, str]], last: str
) -> AsyncIterator[tuple[str | None, str]]:
    async for event, data in stream:
        yield event, data
        if event == last:
            return


async def test_events_are_streamed_as_json_whenever_they_are_further(client: Client, view: InMemoryView) -> None:
    event = committed(1)
    await view.set(recent=[tracked(event, Stage.COMMITTED)])
    async with asyncio.timeout(WATCHDOG_S), client.get("/events.json") as response:
        stream = messages(response)
        seen = [json.loads((await anext(stream))[1])]
        assert await anext(stream) == ("now", "{}")
        for state in (tracked(event), tracked(event, deliveries=[delivered(event)])):
            await view.set(recent=[state, tracked(committed(2))])
            seen.append(json.loads((await anext(stream))[1]))
            if len(seen) == 2:  # the other one, which is then no news
                seen.insert(1, json.loads((await anext(stream))[1]))

    assert [(each["id"][-1], each["stage"], len(each["deliveries"])) for each in seen] == [
        ("1", "committed", 0),
        ("1", "published", 0),
        ("2", "published", 0),
        ("1", "published", 1),
    ]


async def test_the_events_of_a_key_are_streamed_even_if_others_came_later(
    client: Client, view: InMemoryView
) -> None:
    """None of the recent events is one of the key's."""
    assert {each.event.partition_key for each in view.latest.recent if each.event} & {"contact-1"} == set()
    whole = view.timelines["contact-1"]
    async with asyncio.timeout(WATCHDOG_S), client.get("/events.json?key=contact-1") as response:
        stream = messages(response)
        past = [found async for found in _until(stream, "now")]
        last = whole.events[-1]
        view.timelines["contact-1"] = replace(
            whole, events=[*whole.events[:-1], replace(last, stage=Stage.PUBLISHED)]
        )
        await view.count(committed=1)
        event, data = await anext(stream)

    assert [json.loads(each)["event"]["sequence"] for _, each in past[:-1]] == [1, 2, 5, 6, 7, 8]
    assert event is None
    assert (json.loads(data)["id"], json.loads(data)["stage"]) == (last.id, "published")


async def test_events_of_a_key_that_cannot_be_read_are_not_past(client: Client, view: InMemoryView) -> None:
    view.fails = True
    async with asyncio.timeout(WATCHDOG_S), client.get("/events.json?key=contact-1") as response:
        stream = messages(response)
        _, away = await anext(stream)
        view.fails = False
        await view.count(committed=1)
        found = [each async for each in _until(stream, "now")]

    assert (json.loads(away)["stale"], json.loads(away)["problems"][0]["what"]) == (True, "The outbox")
    assert json.loads(found[0][1])["stale"] is False
    assert [event for event, _ in found] == ["known", *([None] * 6), "now"]


def test_a_text_cannot_begin_a_message_of_its_own() -> None:
    assert (
        message("a\r\nb\rc\n\nevent: d", "x") == b"event: x\ndata: a\ndata: b\ndata: c\ndata: \ndata: event: d\n\n"
    )
    assert message("\ud800") == b"data: ?\n\n"


async def test_it_ends_at_once_with_its_streams_open(view: InMemoryView) -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(application(view, loopback), "127.0.0.1", 0) as address:
            responses = [
                await session.get(address + path) for path in ("stream", "stream?key=contact-1", "events.json")
            ]
            for response in responses:
                await response.content.readline()
        # aiohttp cancels handlers that do not end within a minute, and cuts their responses off.
        for response in responses:
            async with asyncio.timeout(WATCHDOG_S):
                await response.content.read()


async def test_a_port_that_is_in_use_is_named_with_the_remedy(view: InMemoryView) -> None:
    async with serving(application(view, loopback), "127.0.0.1", 0) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        with pytest.raises(UsageError, match=rf"port {port} of 127.0.0.1 is in use: .*--port 0"):
            async with serving(application(view, loopback), "127.0.0.1", port):
                pass


async def test_who_asks_for_a_check_together_gets_one(view: InMemoryView) -> None:
    runs, may_end = 0, asyncio.Event()

    async def check() -> Sequence[Finding]:
        nonlocal runs
        runs += 1
        await may_end.wait()
        return FINDINGS

    checks = Checks(check)
    asked = [asyncio.create_task(checks.run()) for _ in range(5)]
    await asyncio.sleep(0)
    may_end.set()
    results = await asyncio.gather(*asked)

    assert runs == 1
    assert all(each is results[0] for each in results)
    assert [each.level for each in results[0].findings] == ["warning", "ok", "ok", "ok"]


async def test_a_check_is_run_again_after_its_pause(view: InMemoryView) -> None:
    found: list[Sequence[Finding]] = [FINDINGS, []]

    async def check() -> Sequence[Finding]:
        return found.pop(0)

    checks = Checks(check, pause_s=0)

    assert len((await checks.run()).findings) == 4
    assert (await checks.run()).findings == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UsageError("SERVICEBUS_ADMIN is no address"), "UsageError: SERVICEBUS_ADMIN is no"),
        (None, "more than 0.01 s"),
    ],
)
async def test_a_check_that_cannot_be_run_says_why(view: InMemoryView, error: Exception | None, text: str) -> None:
    async def check() -> Sequence[Finding]:
        if error is not None:
            raise error
        await asyncio.Event().wait()
        return ()

    checked = await Checks(check, timeout_s=0.01).run()

    assert checked.problem is not None
    assert text in checked.problem.text


async def test_a_page_without_checks_has_no_section_for_them(client: Client) -> None:
    assert (await client.get("/check")).status == 404
    assert 'id="check"' not in await (await client.get("/")).text()


async def test_the_check_without_scripts_is_a_page(view: InMemoryView) -> None:
    async def check() -> Sequence[Finding]:
        return FINDINGS

    async with TestClient(TestServer(application(view, loopback, check=check))) as client:
        page = await (await client.get("/check")).text()

    assert page.startswith("<!doctype html>")
    assert "raise defaultMessageTimeToLive to P14D" in page


async def test_the_page_says_what_to_do_about_what_it_shows(client: Client, view: InMemoryView) -> None:
    view.timelines["k"] = Timeline("k", (), parked_since="2026-02-09T11:20:07+00:00")

    page = await (await client.get("/")).text()
    parked = await (await client.get("/key?key=k")).text()

    for row in (STATES[State.QUARANTINE], QUARANTINE[Reason.MESSAGE_TOO_LARGE]):
        assert marked(row.remedy) in page
    assert STATES[State.PARKED].meaning in parked


async def test_the_page_and_the_state_have_the_version_that_the_command_prints(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse(["--version"])
    version = capsys.readouterr().out.split()[-1]

    page = await (await client.get("/")).text()
    state = await (await client.get("/state.json")).json()

    assert f"Outbox Relay {version}." in page.partition("<footer>")[2]
    assert state["version"] == version


async def test_each_state_leads_to_its_section_of_the_runbook(view: InMemoryView) -> None:
    await view.set(partitions=[Partition("0", "host-1", "5", 3, 31, retry=4, error="refused")])
    linked = ConsoleSettings(runbook_url="https://docs.test/runbook?a=1&b=2")

    async def page_with(settings: ConsoleSettings) -> str:
        async with TestClient(TestServer(application(view, loopback, settings=settings))) as client:
            return await (await client.get("/")).text()

    for section in ("failing", "quarantine", "dead-letters"):
        assert f"<code>docs/runbook.md#{section}</code>" in await page_with(ConsoleSettings())
        assert f'href="https://docs.test/runbook?a=1&amp;b=2#{section}"' in await page_with(linked)


@pytest.mark.parametrize("state", STATES)
def test_a_headline_of_a_state_has_its_section(state: State) -> None:
    assert Headline.of(Level.ERROR, "said", state).section == RUNBOOK[state]


async def test_an_empty_relay_has_a_page(view: InMemoryView) -> None:
    names = ("partitions", "subscriptions", "quarantine", "dead_letters", "recent")
    changes: dict[str, Any] = dict.fromkeys(names, ())
    unread = Snapshot(0, NOON, Flow(NOON), **changes)
    empty = InMemoryView(unread, [Timeline("k", [])])
    async with TestClient(TestServer(application(empty, loopback))) as client:
        page = await (await client.get("/key?key=k")).text()

    assert "The outbox is being read." in page
    assert '<p class="big">\N{EN DASH}</p>' in page
    for claim in ("Empty.", "None.", "No events yet", '<p class="big">0</p>', "accepted by the topic"):
        assert claim not in page
    assert "The outbox has no event of this key." in page
