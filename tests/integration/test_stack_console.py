"""The actions of the stack's page: send, peek, inject faults, release and discard; and who may request them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.cosmos.aio import CosmosClient

from local.console.serving import serving_console
from local.stack.supervisor import Stack
from outbox_relay.command_line import python
from tests.support.browser import CHROMIUM, NO_CHROMIUM, launch, new_page
from tests.support.stacks import running_stack
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

# The status is read every 10 seconds.
_TOO_LONG = "x" * 200


@dataclass
class Page:
    """The page of a stack."""

    stack: Stack
    address: str
    http: aiohttp.ClientSession

    async def post(self, path: str, headers: dict[str, str] | None = None, /, **form: str) -> tuple[int, str]:
        async with self.http.post(f"{self.address}{path}", data=form, headers=headers) as answer:
            return answer.status, await answer.text()

    async def get(self, path: str) -> str:
        async with self.http.get(f"{self.address}{path}") as answer:
            assert answer.status == 200
            return await answer.text()

    async def events(self, key: str) -> list[dict[str, Any]]:
        async with self.http.get(f"{self.address}timeline.json", params={"key": key}) as answer:
            found: list[dict[str, Any]] = (await answer.json())["events"]
            return found

    async def until(
        self, key: str, stages: list[str], *, are_at_subscriptions: bool = False
    ) -> list[dict[str, Any]]:
        """Wait until the events of a key have these stages, or also messages at the subscriptions."""
        async with asyncio.timeout(WATCHDOG_S):
            while True:
                found = await self.events(key)
                has_come = not are_at_subscriptions or all(each["deliveries"] for each in found)
                if has_come and [each["stage"] for each in found] == stages:
                    return found
                await look_again()

    async def until_shown(self, text: str) -> str:
        """Wait until the page has this text; it looks while somebody asks for the state."""
        async with asyncio.timeout(WATCHDOG_S):
            while True:
                await self.get("state.json")
                if text in (html := await self.get("")):
                    return html
                await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    async with (
        running_stack(tmp_path_factory.mktemp("logs")) as running,
        serving_console(running.stack, 0) as address,
        aiohttp.ClientSession() as http,
    ):
        yield Page(running.stack, address, http)


@asynccontextmanager
async def watched(stack: Stack) -> AsyncIterator[asyncio.Task[None]]:
    """The task with which `up` starts parts again."""
    task = asyncio.create_task(stack.watch())
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_event_is_sent_and_peeked_at_its_subscription(page: Page) -> None:
    status, said = await page.post("local/send", key="k <1>", action="Renamed", data='{"name": "Jane"}')
    assert (status, "Committed Renamed as number 1 of" in said) == (200, True)

    [event] = await page.until("k <1>", ["published"])
    peeked = await page.get("local/peek?subscription=all")
    assert event["id"] in peeked
    assert "k &lt;1&gt;" in peeked
    shown = unescape(peeked)
    assert '"name":"Jane"' in shown.replace(" ", "")
    assert '"subject": "Renamed"' in shown
    # Peeking has locked nothing, and counts as no delivery.
    [event] = await page.until("k <1>", ["published"], are_at_subscriptions=True)
    [delivery] = event["deliveries"]
    assert (delivery["arrival"], delivery["deliveries"]) == ("waiting", 0)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"key": "", "action": "A"}, "needs a partition key"),
        ({"key": "k", "action": "A", "data": "{"}, "The data: not JSON"),
        ({"key": "k", "action": "A", "data": "[]"}, "must be a JSON object"),
    ],
)
async def test_an_event_that_cannot_be_written_is_refused(page: Page, form: dict[str, str], message: str) -> None:
    assert message in (await page.post("local/send", **form))[1]
    assert await page.events("k") == []


@pytest.mark.parametrize("path", ["local/send", "local/fault", "local/quarantine"])
async def test_another_page_cannot_ask_for_it(page: Page, path: str) -> None:
    form = {"key": "foreign", "action": "A", "kind": "kill-host", "operation": "discard", "reason": "id-too-long"}

    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    ):
        assert (await page.post(path, headers, **form))[0] == 403, headers

    assert await page.events("foreign") == []
    assert not page.stack.hosts[0].ended


async def test_the_page_itself_may_ask_for_it(page: Page) -> None:
    headers = {"Origin": page.address.rstrip("/"), "Sec-Fetch-Site": "same-origin"}

    assert (await page.post("local/send", headers, key="own", action="A"))[0] == 200

    await page.until("own", ["published"])


async def test_a_record_is_released_and_discarded_by_the_operators_command(page: Page) -> None:
    async with page.http.post(f"{page.address}local/send", data={"key": "q" * 200, "action": "A"}) as answer:
        assert "Committed" in await answer.text()
    await page.until("q" * 200, ["quarantined"])

    _, released = await page.post("local/quarantine", operation="release", reason="partition-key-too-long")
    assert "released 0, still invalid 1, not sent 0" in released
    _, discarded = await page.post("local/quarantine", operation="discard", reason="partition-key-too-long")
    assert "discarded 1" in discarded
    for wrong in ({"operation": "drop", "id": "x"}, {"operation": "discard"}):
        assert "Give an operation" in (await page.post("local/quarantine", **wrong))[1]


async def test_a_discarded_event_is_accepted_neither_here_nor_at_the_broker(page: Page) -> None:
    topic = f"{page.stack.administration['SERVICEBUS_ADMIN']}/admin/entities"
    async with page.http.get(topic) as answer:
        before = (await answer.json())["domain-events"]["accepted"]
    shown = json.loads(await page.get("state.json"))["flow"]["published"]
    key = "d" * 200
    await page.post("local/send", key=key, action="Discarded")
    await page.until(key, ["quarantined"])
    await page.post("local/quarantine", operation="discard", reason="partition-key-too-long")

    [event] = await page.until(key, ["discarded"])

    assert (event["removed"]["outcome"], event["removed"]["reason"]) == ("discarded", "partition-key-too-long")
    async with page.http.get(topic) as answer:
        assert (await answer.json())["domain-events"]["accepted"] == before
    assert json.loads(await page.get("state.json"))["flow"]["published"] == shown


async def test_what_looks_like_an_option_of_the_command_is_none(page: Page) -> None:
    # In the process of the stack, an option that argparse refuses or prints would end all of it.
    for operation in ("release", "discard"):
        for option in ("--all", "--help", "no-such-reason"):
            answer = await page.post("local/quarantine", operation=operation, reason=option)
            assert (answer[0], f"There is no reason &#39;{option}&#39;" in answer[1]) == (200, True)
            answer = await page.post("local/quarantine", operation=operation, id=option)
            assert answer[0] == 200
            assert re.search("is not in quarantine|is too short", answer[1]), answer[1]


@pytest.mark.parametrize("key", ["a/b", "a\\b", "a?b#c"])
async def test_a_key_with_what_no_id_may_have_is_sent(page: Page, key: str) -> None:
    for number in (1, 2):
        status, said = await page.post("local/send", key=key, action="A")
        assert (status, f"Committed A as number {number} of" in said) == (200, True)


async def test_hostile_requests_are_the_clients_errors(page: Page) -> None:
    for path in ("local/send", "local/fault", "local/quarantine"):
        for body, headers in (
            (b"key=a", {"content-type": "multipart/form-data"}),
            (b"key=a", {"content-type": "application/x-www-form-urlencoded; charset=bogus"}),
            (b"key=a", {"content-type": "application/x-www-form-urlencoded", "content-encoding": "gzip"}),
        ):
            headers |= {"connection": "close"}
            async with page.http.post(f"{page.address}{path}", data=body, headers=headers) as answer:
                assert answer.status == 400, (path, headers)
    deep = await page.post("local/send", key="k", action="A", data="[" * 100_000)
    assert (deep[0], "not JSON" in deep[1]) == (200, True)
    for path, status in ((f"timeline.json?key=k&limit={'9' * 5000}", 400), (f"static/{'x' * 5000}", 404)):
        async with page.http.get(f"{page.address}{path}") as answer:
            assert answer.status == status, path


async def test_a_page_that_the_host_withholds_is_named_with_the_hosts_error(page: Page) -> None:
    deep: dict[str, Any] = {}
    for _ in range(64):
        deep = {"a": deep}
    environment = page.stack.settings
    async with CosmosClient.from_connection_string(environment["COSMOS"]) as client:
        container = client.get_database_client("outbox").get_container_client("data")
        await container.create_item({"id": "deep", "partitionKey": "deep", "type": "contact", "data": deep})
        await page.post("local/send", key="deep", action="A")

        html = await page.until_shown("page withheld")
        assert "MaxDepth of 64 has been exceeded" in html
        assert "stopped at a document that the host cannot hand over" in html
        assert f"<code>{python()} -m relay check --scan</code>" in html

        await container.delete_item("deep", partition_key="deep")
        await page.until("deep", ["published"])


async def test_a_topic_that_is_disabled_is_named_with_the_remedy(page: Page) -> None:
    port = page.stack.servicebus.details["admin_port"]
    url = f"http://127.0.0.1:{port}/admin/entities/domain-events/status"
    async with page.http.post(url, json={"status": "SendDisabled"}) as answer:
        assert answer.status == 200
    try:
        html = await page.until_shown("is SendDisabled")
        assert "Set its status to Active." in html
        assert f"<code>{python()} -m relay check</code>" in html
    finally:
        async with page.http.post(url, json={"status": "Active"}) as answer:
            assert answer.status == 200


async def test_what_service_bus_did_not_answer_is_sent_again_and_dropped_as_a_duplicate(page: Page) -> None:
    before, now = None, await counts(page)
    # What an earlier test has sent may not be counted yet.
    while before != now:
        await asyncio.sleep(0.5)
        before, now = now, await counts(page)
    assert "connection is cut" in (await page.post("local/fault", kind="cut"))[1]

    await page.post("local/send", key="cut", action="A")
    await page.until("cut", ["published"])

    async with asyncio.timeout(WATCHDOG_S):
        while (after := await counts(page))["duplicates_dropped"] == before["duplicates_dropped"]:
            await asyncio.sleep(0.1)
    assert after["accepted"] - after["duplicates_dropped"] == before["accepted"] - before["duplicates_dropped"] + 1


async def test_a_killed_host_is_replaced_and_the_next_one_goes_on(page: Page) -> None:
    killed = page.stack.hosts[0]
    async with watched(page.stack) as watching:
        assert "The host was killed" in (await page.post("local/fault", kind="kill-host"))[1]
        await page.post("local/send", key="killed", action="A")

        await page.until("killed", ["published"])

        assert killed.ended
        assert [host.name for host in page.stack.hosts] == ["functions-2"]
        assert not watching.done()
        assert page.stack.upkeep.sentences == []
        # One that ends on its own is replaced too, and said.
        replaced = asyncio.Event()
        page.stack.upkeep.listen(lambda ended: None if ended.restored_at is None else replaced.set())
        port = page.stack.hosts[0].details["port"]
        page.stack.kill_host()
        await asyncio.wait_for(replaced.wait(), WATCHDOG_S)

        [host] = page.stack.hosts
        assert (host.name, host.details["port"]) == ("functions-3", port)
        [said] = page.stack.upkeep.sentences
        assert re.fullmatch(
            r"functions-2 was killed by SIGKILL at \S+ UTC; functions-3 was started in its place at \S+ UTC", said
        )


async def counts(page: Page) -> dict[str, int]:
    port = page.stack.servicebus.details["admin_port"]
    async with page.http.get(f"http://127.0.0.1:{port}/admin/entities") as answer:
        found: dict[str, int] = (await answer.json())["domain-events"]
        return found


async def test_the_page_offers_all_of_it_to_a_browser(page: Page) -> None:
    playwright = pytest.importorskip("playwright.async_api")
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    # Where events are, the form is closed.
    await page.post("local/send", key="before", action="A")
    await page.until_shown("before")
    async with playwright.async_playwright() as started:
        browser = await launch(started)
        shown = await new_page(browser)
        complaints: list[str] = []
        shown.on("console", lambda said: complaints.append(said.text) if said.type != "log" else None)
        await shown.goto(page.address)
        said = shown.locator("#local-said")
        send = shown.get_by_role("button", name="Send an event")

        await shown.get_by_role("button", name="Peek all").press("Enter")
        await playwright.expect(said.get_by_role("button", name="Close")).to_be_visible()
        await playwright.expect(send).to_be_hidden()
        await shown.locator("#local > details > summary").press("Enter")
        await shown.get_by_label("Partition key", exact=True).last.fill("clicked")
        await send.click()
        await playwright.expect(said).to_contain_text("Committed ContactRenamed as number 1 of clicked")
        await playwright.expect(shown.locator("#recent")).to_contain_text("clicked")
        await page.until("clicked", ["published"])
        await shown.get_by_role("button", name="Peek all").press("Enter")
        message = said.locator("li", has_text="clicked")
        await message.locator("summary", has_text="Properties and body").press("Enter")
        await playwright.expect(message.locator("pre").last).to_contain_text("Jane")
        await said.get_by_role("button", name="Close").press("Enter")
        await playwright.expect(said).to_be_empty()
        await playwright.expect(shown.get_by_role("button", name="Peek all")).to_be_focused()
        await shown.get_by_role("button", name="Make Service Bus busy").click()
        await playwright.expect(said).to_contain_text("refused with server-busy")
        await browser.close()
    assert complaints == []
