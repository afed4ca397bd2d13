"""Rules that change in one step while streams are far apart: each event goes by the rules of its time."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from local.stack.parts import ROOT
from outbox_relay.changefeed import connect_async
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.entity_types import (
    DAY_MS,
    DuplicateDetection,
    QueueEntity,
    Receiving,
    Sending,
)
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.sql.install import install, install_rules
from outbox_relay.operator.cli.generations import format_time
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.timelines import CosmosTimelines
from relay.backends.sql.database import Database
from relay.backends.sql.rows import position_time
from relay.backends.sql.timelines import SqlTimelines
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.routes import rulebook
from relay.routes.generations import Timeline
from relay.routes.rulebook import Timelines
from tests.support.broker import set_status
from tests.support.operators import relay_command
from tests.support.outbox import event
from tests.support.sql_deployment import FEED, TABLE, SqlDeployment, working
from tests.support.subscriber import Subscriber
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

QUEUE, TOPIC = "audit", "domain-events"

# Events with the action `Moved` go to one destination, and later to the other, which is ahead.
FILE = """
changed_rules = "later"
{outbox}
[destinations.default]

[destinations.audit]
queue = "audit"

[[routes]]
when = {{ action = "Audited" }}
to = ["audit"]

[[routes]]
to = ["{moved_to}"]
"""


@pytest.fixture
def entities(entities: Entities) -> Entities:
    """The project's own topic, and a queue."""
    queue = QueueEntity(QUEUE, Sending(DuplicateDetection(DAY_MS)), Receiving(requires_session=True))
    return replace(entities, queues=(queue,))


@pytest.fixture
def queue(servicebus: ServiceBusServer) -> Subscriber:
    return Subscriber(servicebus.connection_string, QUEUE, subscription=None)


@pytest.fixture
def topic(servicebus: ServiceBusServer) -> Subscriber:
    return Subscriber(servicebus.connection_string)


# The deployed app, in which changed rules count a second later at most.
APP = f"""
import importlib.util

from relay.routes import rulebook

rulebook.AHEAD_S = 1
spec = importlib.util.spec_from_file_location("deployed", {str(ROOT / "function_app.py")!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
app = module.app
"""


# The exit code of ordering an event of either destination to be set aside, and whether it was ordered.
MOVED = {"e3": (0, True), "e25": (1, False)}

NO_OBJECT = {"id": "bad", "partitionKey": "other", "type": "domainEvent", "data": "text"}


def of_action(number: int, action: str) -> dict[str, Any]:
    return event(f"e{number}", "k", action=action) | {"sequence": number}


def by_generation(timeline: Timeline, times: dict[str, int]) -> dict[str, list[str]]:
    """The ids of the events that were moved, in order, by the destination of their time."""
    found: dict[str, list[str]] = {"default": [], "audit": []}
    for identifier, committed_at in times.items():
        rules = json.loads(timeline.at(committed_at).rules)["file"]
        found[rules["routes"][-1]["to"][0]].append(identifier)
    return found


def outcomes(out: str) -> dict[str, str]:
    """Return what each stream does with an event, by the lines of `explain`."""
    return dict(re.findall(r"^stream (\w+), to .*: the event (is [\w ]+?)(?: \(|$)", out, re.MULTILINE))


async def operated(environment: dict[str, str]) -> None:
    """Operate on events of the stream to which they belonged when they were committed."""
    of_stream = ("--stream", "default", "--yes", "--json")
    added = {name: await relay_command(environment, "quarantine", "add", "k", name, *of_stream) for name in MOVED}
    released = await relay_command(environment, "quarantine", "release", "--all", *of_stream[:2], "--json")

    assert {name: (run.code, run.json["ordered"]) for name, run in added.items()} == MOVED
    assert [each["reason"] for each in released.json["stillInvalid"]] == ["data-not-object"]


async def begun(store: Timelines, generations: int) -> None:
    """Wait until this number of generations have begun."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            found = await store.read()
            if found is not None and len(found.timeline.generations) == generations:
                last = found.timeline.last.begins_at or 0
                if time.time() > last + 1:
                    return
            await asyncio.sleep(0.02)  # what another process does can only be asked for again and again


async def timeline_of(store: Timelines) -> Timeline:
    found = await store.read()
    assert found is not None
    return found.timeline


async def test_a_move_in_one_step_loses_nothing_of_a_container(
    cosmos: CosmosServer,
    account: CosmosClient,
    servicebus: ServiceBusServer,
    topic: Subscriber,
    queue: Subscriber,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    provision(cosmos.account, [ContainerSpec.parse(f"{DATABASE}/quarantine-audit:/partitionKey")])
    data = account.get_database_client(DATABASE).get_container_client("data")
    (tmp_path / "function_app.py").write_text(APP)
    copy(ROOT / "host.json", tmp_path)
    file = tmp_path / "relay.toml"
    times: dict[str, int] = {}

    async def commit(number: int, action: str) -> None:
        document = await data.create_item(of_action(number, action))
        if action == "Moved":
            times[document["id"]] = document["_ts"]

    @asynccontextmanager
    async def deployed(moved_to: str) -> AsyncIterator[None]:
        file.write_text(FILE.format(outbox="", moved_to=moved_to))
        host = Host(
            *(tmp_path, environment | {"RELAY_POLL_DELAY_MS": "50", "RELAY_FILE": str(file)}),
            separate_worker=True,
            lease_acquire_ms=50,
            shutdown_timeout_s=0.1,
        )
        await host.start()
        try:
            yield
        finally:
            await host.stop()

    containers = Containers(Settings.from_environment(environment).in_cosmos)
    store = CosmosTimelines(containers, "data", "leases")
    try:
        await set_status(servicebus.admin_port, TOPIC, "SendDisabled")
        for number in range(20):
            await commit(number, "Moved")
        await commit(20, "Audited")
        await data.create_item(NO_OBJECT)
        async with deployed("default"):
            # The queue is ahead: it has passed the events that wait for the topic.
            await queue.receive(1)
        async with deployed("audit"):
            await begun(store, 2)
            for number in range(21, 30):
                await commit(number, "Moved")
            await set_status(servicebus.admin_port, TOPIC, "Active")
            await queue.receive(10)
            await topic.receive(20)
            file.write_text(FILE.format(outbox="", moved_to="audit"))
            checked = await relay_command(environment | {"RELAY_FILE": str(file)}, "check")
            explained = {
                name: await relay_command(environment | {"RELAY_FILE": str(file)}, "explain", name, "--key", "k")
                for name in ("e3", "e25")
            }
            await operated(environment | {"RELAY_FILE": str(file)})
        async with deployed("default"):
            await begun(store, 3)
            for number in range(30, 35):
                await commit(number, "Moved")
            await topic.receive(25)
        timeline = await timeline_of(store)
    finally:
        await store.close()

    second = format_time(timeline.generations[1].begins_at or 0)
    assert f"are those of generation 2, which counts for events committed since {second}" in checked.out
    assert (
        f"the stream default was given up for events committed since {second}, and may still have" in checked.out
    )
    assert outcomes(explained["e3"].out) == {"default": "is published", "audit": "is not for this stream"}
    assert "by generation 1 of the rules, the first one" in explained["e3"].out
    assert outcomes(explained["e25"].out) == {"default": "is not for this stream", "audit": "is published"}
    assert f"by generation 2 of the rules, which counts since {second}" in explained["e25"].out
    expected = by_generation(timeline, times)
    assert (len(expected["default"]), len(expected["audit"])) == (25, 9)
    assert topic.ids() == {"k": expected["default"]}
    assert queue.ids() == {"k": ["e20", *expected["audit"]]}


async def test_a_move_in_one_step_loses_nothing_of_a_feed(
    sql: SqlDeployment,
    servicebus: ServiceBusServer,
    topic: Subscriber,
    queue: Subscriber,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(rulebook, "AHEAD_S", 1)
    sql.create()
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string, "RELAY_POLL_DELAY_MS": "50"}
    outbox = f'[outboxes.default]\nfeed = "{TABLE}"\nshards = 1\n'

    def commit(*numbers: int, action: str = "Moved") -> None:
        sql.write(*((each["id"], "k", each["data"]) for each in (of_action(one, action) for one in numbers)))

    @asynccontextmanager
    async def deployed(moved_to: str) -> AsyncIterator[None]:
        (tmp_path / "relay.toml").write_text(FILE.format(outbox=outbox, moved_to=moved_to))
        async with AsyncExitStack() as running:
            for each in read_streams(environment, app=tmp_path):
                await running.enter_async_context(working(each))
            yield

    session = await connect_async(sql.url)
    await install(session, "relay.item_audit")
    await install_rules(session)
    await session.close()
    feed = Settings.from_environment(environment | {"SQL_FEED": TABLE}).feed
    assert feed is not None
    store = SqlTimelines(Database(feed), feed)
    try:
        await set_status(servicebus.admin_port, TOPIC, "SendDisabled")
        commit(*range(20))
        commit(20, action="Audited")
        sql.write(("bad", "other", "text"))
        async with deployed("default"):
            await queue.receive(1)
        async with deployed("audit"):
            await begun(store, 2)
            commit(*range(21, 30))
            await set_status(servicebus.admin_port, TOPIC, "Active")
            await queue.receive(10)
            await topic.receive(20)
            await sql.until_passed()
            by_file = environment | {"RELAY_FILE": str(tmp_path / "relay.toml")}
            checked = await relay_command(by_file, "check")
            explained = await relay_command(by_file, "explain", "e3", "--key", "k")
            await operated(by_file)
        timeline = await timeline_of(store)
    finally:
        await store.close()

    positions = sql.rows(f"select id, ulid from {FEED} order by ulid")
    expected = by_generation(
        timeline, {id_: position_time(ulid.bytes) for id_, ulid in positions if id_ not in ("e20", "bad")}
    )
    assert (len(expected["default"]), len(expected["audit"])) == (20, 9)
    assert "the rules of the outbox default are those of generation 2, which counts for" in checked.out
    assert re.search("the stream default was given up for .* and may still have earlier ones", checked.out)
    assert outcomes(explained.out) == {"default": "is published", "audit": "is not for this stream"}
    assert topic.ids() == {"k": expected["default"]}
    assert queue.ids() == {"k": ["e20", *expected["audit"]]}
