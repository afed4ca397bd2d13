"""The page of a stack with several streams, and `python -m local watch`: two outboxes, a topic and a queue."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from local.console.serving import serving_console
from local.demo.console import differences, serving_observers
from local.demo.tally import Tally
from local.program import PROGRAM
from local.sending.routed import STACK_APP
from local.stack import destinations
from local.stack.command import _addresses
from local.stack.environment import cosmos_settings, servicebus_settings
from local.stack.lock import READY
from local.stack.options import StackOptions
from local.stack.parts import Part
from local.stack.readings import Readings
from local.stack.supervisor import Stack
from local.watching import command as watch_command
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.console.truncation import CONTENT
from relay.backends.cosmos.backend import CosmosBackend
from tests.support import programs
from tests.support.leases import TriggerLeases

FILE = """
[outboxes.default]

[outboxes.orders]
container = "orders"

[destinations.audit]
queue = "audit"
connection = "AUDIT_BUS"

# Beside the queue, and of no stream.
[destinations.unused]
topic = "unused"
connection = "AUDIT_BUS"

[[routes]]
outbox = "orders"
when = { action = "Audited" }
to = ["audit"]

[[routes]]
to = ["default"]
"""
TITLES = {
    "default": "default → topic 'domain-events'",
    "orders": "orders → topic 'domain-events'",
    "orders-audit": "orders-audit → queue 'audit' of AUDIT_BUS",
}
TOO_LONG = "k" * 200


def part(name: str, port: int) -> Part:
    return cast(Part, SimpleNamespace(name=name, details={"port": port, "admin_port": port}))


@dataclass
class Served:
    """The pages of a stack whose services are in this process, and whose relay a test runs."""

    stack: Stack
    address: str
    app: Path
    http: aiohttp.ClientSession
    cosmos: CosmosClient

    async def get(self, path: str) -> str:
        async with self.http.get(f"{self.address}{path}") as answer:
            assert answer.status == 200, path
            return await answer.text()

    async def post(self, stream: str, route: str, /, **form: str) -> str:
        """Post a form of a stream's page; returns what the page says then, without its markup."""
        url = f"{self.address}streams/{stream}/local/{route}"
        async with self.http.post(url, data=form) as answer:
            assert answer.status == 200, url
            return " ".join(re.sub("<[^>]+>", "", await answer.text()).split())

    async def stages(self, stream: str, key: str) -> list[str]:
        """The stages of a key's events on a stream's page."""
        found = json.loads(await self.get(f"streams/{stream}/timeline.json?key={key}"))
        assert found["problems"] == []
        return [each["stage"] for each in found["events"]]

    async def relay(self) -> None:
        """Deliver what is in the feed of each stream to its relay."""
        for each in self.stack.streams:
            relay = CosmosBackend(each).relay
            trigger = TriggerLeases(
                self.cosmos, outbox=each.in_cosmos.container, prefix=each.in_cosmos.lease_prefix
            )

            async def handle(page: list[dict[str, Any]], relay: Any = relay) -> None:
                await relay.handle(page, "i1")

            try:
                await trigger.deliver(handle)
            finally:
                await relay.close()


@pytest.fixture
async def served(cosmos: CosmosServer, quick_sdk: None, tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "relay.toml").write_text(FILE)
    options = StackOptions(app=tmp_path, logs=tmp_path / "logs")
    stack = Stack(options)
    async with AsyncExitStack() as opened:
        entities = {name: Entities.from_file(path) for name, path in destinations.namespaces(options).items()}
        buses = {name: await opened.enter_async_context(ServiceBusServer(each)) for name, each in entities.items()}
        main, audit = buses["SERVICEBUS"], buses["AUDIT_BUS"]
        stack.outbox = part("cosmos", cosmos.port)
        stack.servicebus = part("servicebus", main.admin_port)
        stack.namespaces["AUDIT_BUS"] = part("servicebus-audit_bus", audit.admin_port)
        details = {"connection_string": main.connection_string, "duplicate_windows_s": {}}
        stack.settings = {
            **cosmos_settings({"connection_string": cosmos.connection_string}),
            **servicebus_settings(details),
            "AUDIT_BUS": audit.connection_string,
        }
        await destinations.create_containers(stack.streams)
        yield Served(
            stack,
            await opened.enter_async_context(serving_console(stack, 0)),
            tmp_path,
            await opened.enter_async_context(aiohttp.ClientSession()),
            await opened.enter_async_context(CosmosClient.from_connection_string(cosmos.connection_string)),
        )


@pytest.fixture
def watch(served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `python -m local watch` on the stack until `--count`; returns the lines that it printed."""

    async def run(*words: str, code: int = 0) -> list[str]:
        capsys.readouterr()
        assert await programs.run(PROGRAM, "watch", *words) == code
        printed = capsys.readouterr()
        return (printed.err if code else printed.out).splitlines()

    env_file = {
        **served.stack.operator_settings,
        READY: f"{served.address}ready",
        STACK_APP: str(served.app),
    }
    monkeypatch.setattr(watch_command, "settings_of_running", lambda _: env_file)
    return run


async def test_the_first_page_has_a_line_for_each_stream_and_each_has_a_page(served: Served) -> None:
    overview = await served.get("")
    parts = json.loads(await served.get("ready"))["parts"]
    states = json.loads(await served.get("state.json"))["streams"]

    assert parts == {"cosmos": True, "servicebus": True, "servicebus-audit_bus": True}
    assert "Send an event" not in overview
    assert [(each["name"], each["snapshot"]["problems"]) for each in states] == [(name, []) for name in TITLES]
    assert [[each["name"] for each in state["snapshot"]["subscriptions"]] for state in states] == [
        ["all", "names"],
        ["all", "names"],
        ["audit"],
    ]
    for name in TITLES:
        assert f'<a href="/streams/{name}/">' in overview
        page = await served.get(f"streams/{name}/")
        assert f'hx-post="/streams/{name}/local/send"' in page
        assert f'hx-post="/streams/{name}/local/fault"' in await served.get(f"streams/{name}/local/actions")
        for path in re.findall(r'(?:href|src)="/(static/[^"]+)"', page):
            await served.get(path)


async def test_the_addresses_are_those_of_every_namespace(served: Served) -> None:
    lines = _addresses(served.stack, "http://main", served.address, served.app / "stack.env")

    audit = served.stack.namespaces["AUDIT_BUS"].details["admin_port"]
    assert f"  AUDIT_BUS   {served.stack.settings['AUDIT_BUS']}" in lines
    assert "  Service Bus counts  http://main/admin/entities" in lines
    assert f"  AUDIT_BUS counts    http://127.0.0.1:{audit}/admin/entities" in lines


async def test_an_event_is_sent_to_the_outbox_of_the_page_and_waits_at_its_destination(served: Served) -> None:
    assert await served.post("default", "send", key="d", action="Placed") == "Committed Placed as number 1 of d."
    assert await served.post("orders", "send", key="o", action="Placed") == "Committed Placed as number 1 of o."
    audited = await served.post("orders-audit", "send", key="a", action="Audited")
    elsewhere = await served.post("orders-audit", "send", key="e", action="Placed")
    await served.relay()

    assert audited == "Committed Audited as number 1 of a."
    assert elsewhere == "Committed Placed for another stream: see orders."
    shown = {name: [key for key in "doae" if await served.stages(name, key) == ["published"]] for name in TITLES}
    assert shown == {"default": ["d"], "orders": ["o", "e"], "orders-audit": ["a"]}
    queue = await served.get("streams/orders-audit/local/peek?subscription=audit")
    topic = await served.get("streams/orders/local/peek?subscription=all")
    assert "waited longest in the queue <bdi>audit</bdi>" in queue
    assert re.findall("<bdi>([a-z])</bdi>", queue) == ["a"]
    # Two outboxes have this topic for a destination.
    assert sorted(re.findall("<bdi>([a-z])</bdi>", topic)) == ["d", "e", "o"]


async def test_what_waits_is_peeked_with_the_beginning_of_its_content(served: Served) -> None:
    for key, text in (("short", "<b>Oslo</b>"), ("long", "😀" * 10_000)):
        await served.post("default", "send", key=key, action="Moved", data=json.dumps({"city": text}))
    await served.relay()

    html = await served.get("streams/default/local/peek?subscription=all")
    contents = [unescape(each) for each in re.findall("<pre>(.*?)</pre>", html, re.DOTALL)]
    properties, body, _, long = contents
    assert (
        json.loads(properties)["properties"] | {"subject": "Moved", "sessionId": "short"}
        == json.loads(properties)["properties"]
    )
    assert json.loads(body)["city"] == "<b>Oslo</b>"
    assert "<b>" not in html
    assert (len(long), long[-1]) == (CONTENT, "…")
    for nothing in ("none", "../../../domain-events/Subscriptions/all", "all/messages?"):
        assert "No message waits" in await served.get(f"streams/default/local/peek?subscription={quote(nothing)}")


async def test_the_demo_serves_the_page_of_each_stream_and_compares_its_counts(
    served: Served, tmp_path: Path
) -> None:
    await served.post("orders-audit", "send", key="a", action="Audited")
    await served.relay()
    audited, nothing = Tally(), Tally()
    audited.wrote({"id": "a", "partitionKey": "a", "data": {"action": "Audited"}}, 0.0)

    async with serving_observers(served.stack, tmp_path / "demo.env") as (address, observers):
        async with served.http.get(f"{address}state.json") as answer:
            shown = [each["name"] for each in (await answer.json())["streams"]]
        async with served.http.get(f"{address}streams/orders-audit/") as answer:
            page = await answer.text()
        compared = zip(observers, (nothing, nothing, audited), ("all", "all", "audit"), strict=True)
        found = [await differences(observer, tally, 0, name) for observer, tally, name in compared]

    assert shown == list(TITLES)
    assert found == [[], [], []]
    assert "Send an event" not in page


async def test_a_record_is_released_and_discarded_in_the_quarantine_of_its_stream(served: Served) -> None:
    await served.post("orders-audit", "send", key=TOO_LONG, action="Audited")
    await served.relay()
    form = {"operation": "discard", "reason": "partition-key-too-long"}

    others = [await served.post(name, "quarantine", **form) for name in ("default", "orders")]
    released = await served.post("orders-audit", "quarantine", **form | {"operation": "release"})
    before = await served.stages("orders-audit", TOO_LONG)
    discarded = await served.post("orders-audit", "quarantine", **form)

    assert all("discarded 1" not in said for said in others)
    assert "still invalid 1" in released
    assert before == ["quarantined"]
    assert "discarded 1" in discarded
    assert await served.stages("orders-audit", TOO_LONG) == ["discarded"]


async def test_a_fault_is_injected_where_the_stream_sends(served: Served) -> None:
    assert "connection is cut" in await served.post("orders-audit", "fault", kind="cut")

    async def pending(port: int) -> list[str]:
        async with served.http.get(f"http://127.0.0.1:{port}/admin/faults") as answer:
            return [each["entity"] for each in (await answer.json())["pending"]]

    assert await pending(served.stack.namespaces["AUDIT_BUS"].details["admin_port"]) == ["audit"]
    assert await pending(served.stack.servicebus.details["admin_port"]) == []


async def test_watch_follows_all_streams_or_one(served: Served, watch: Any) -> None:
    for stream, action in (("default", "Placed"), ("orders", "Placed"), ("orders-audit", "Audited")):
        await served.post(stream, "send", key=f"of-{stream}", action=action)
    await served.relay()

    of_all = [json.loads(line) for line in await watch("--json", "--count", "3")]
    of_key = [json.loads(line) for line in await watch("--json", "--count", "1", "--key", "of-orders")]
    of_one = await watch("--stream", "orders-audit", "--count", "1")
    titled = await watch("--count", "3")

    accepted = [(each["stream"], each["partitionKey"]) for each in of_all if each["what"] == "accepted"]
    assert sorted(accepted) == [(name, f"of-{name}") for name in sorted(TITLES)]
    assert {(each["stream"], each["partitionKey"]) for each in of_key} == {("orders", "of-orders")}
    assert [re.split("  +", line)[1:4] for line in of_one[:2]] == [
        [TITLES["orders-audit"], "of-orders-audit #1", "Audited"]
    ] * 2
    assert all(any(f"  {title}  " in line for line in titled) for title in TITLES.values())


async def test_watch_refuses_a_stream_that_there_is_not(watch: Any) -> None:
    assert await watch("--stream", "audit", code=2) == [
        "--stream audit: there is no such stream; there are default, orders, orders-audit"
    ]


async def test_the_rates_are_those_of_all_streams(served: Served) -> None:
    async with Readings(served.stack) as readings:
        before = await readings.take()
        for stream, action in (("default", "Placed"), ("orders", "Placed"), ("orders-audit", "Audited")):
            await served.post(stream, "send", key=f"of-{stream}", action=action)
        await served.post("orders-audit", "send", key=TOO_LONG, action="Audited")
        await served.relay()
        after = await readings.take()
        await served.post("orders", "send", key="waits", action="Placed")
        waiting = await readings.take()

    assert (before.relayed, before.lag_s) == (0, None)
    # Each event is committed with a business document.
    assert (after.relayed, after.documents, after.quarantined, after.lag_s) == (3, 8, 1, 0)
    assert waiting.lag_s is not None
    assert waiting.lag_s > 0
    assert (waiting.documents, waiting.relayed) == (10, 3)
