"""`python -m relay` on an app with a topic and a queue, through the real SDKs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from local.stack import provision as provision_command
from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.entity_types import DuplicateDetection, QueueEntity, Receiving, Sending
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.cli.smoke_receiver import choose, open_session
from outbox_relay.operator.console.servicebus import ServiceBusTopic
from relay.config.streams import read_streams, stream_of
from tests.support.broker import TurnableClock
from tests.support.dead_letters import dead_letter, event
from tests.support.operators import relay_command

WINDOW_MS = 300_000
FILE = """
[destinations.audit]
queue = "audit"

[[routes]]
when = { "/data/audited" = true }
to = ["audit"]

[[routes]]
to = ["default"]
"""


@pytest.fixture
def entities(entities: Entities) -> Entities:
    """The project's own topic, and a queue."""
    queue = QueueEntity(
        "audit",
        Sending(DuplicateDetection(WINDOW_MS)),
        Receiving(requires_session=True, dead_letter_on_expiry=True),
    )
    return replace(entities, queues=(queue,))


@pytest.fixture
def environment(environment: dict[str, str], cosmos: CosmosServer, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "relay.toml").write_text(FILE)
    provision(cosmos.account, [ContainerSpec.parse(f"{DATABASE}/quarantine-audit:/partitionKey")])
    more = {
        "RELAY_FILE": str(tmp_path / "relay.toml"),
        "RELAY_POLL_DELAY_MS": "50",
        "RELAY_DUPLICATE_WINDOW_S": "60",
    }
    return environment | more


async def test_check_reads_the_topic_and_the_queue(environment: dict[str, str]) -> None:
    checked = await relay_command(environment, "check", "--min-window", "PT5M")

    assert checked.code == 0, checked.out
    assert (
        "ok       /data/audited is true → queue 'audit'\nok       everything else → topic 'domain-events'"
        in checked.out
    )
    assert "stream audit: the queue 'audit' can be sent to" in checked.out
    assert "stream audit: the queue 'audit' requires sessions" in checked.out
    assert "stream default: subscription 'all' requires sessions" in checked.out


@pytest.fixture
def clock() -> TurnableClock:
    """The broker's, which is behind: what is published now is old when it is turned forward."""
    clock = TurnableClock()
    clock.ahead_ms = -2 * WINDOW_MS
    return clock


async def test_the_dead_letters_of_a_queue_are_listed_published_again_and_discarded(
    entities: Entities, clock: TurnableClock, environment: dict[str, str], quick_sdk: None
) -> None:
    async with ServiceBusServer(entities, clock=clock) as server:
        environment |= {"SERVICEBUS": server.connection_string, "SERVICEBUS_ADMIN": server.admin_endpoint}
        queue, outlet = server.broker.namespace.destination("audit"), server.broker.namespace.outlet("audit")
        for number in (1, 2, 3):
            queue.publish([parse(bytes(event("k", number).encode()))])
        dead_letter(outlet, "k", 3)
        clock.ahead_ms = 0

        async def deadletters(*words: str) -> Any:
            return (await relay_command(environment, "deadletters", *words, "--stream", "audit", "--json")).json

        shown_by_console = ServiceBusTopic(stream_of(read_streams(environment), "audit"), environment)
        counted = [(each.name, each.active, each.dead_lettered) for each in await shown_by_console.subscriptions()]
        [group] = await shown_by_console.dead_letters("audit")
        assert (counted, group.count, await shown_by_console.obstacles()) == ([("audit", 0, 3)], 3, [])
        await shown_by_console.close()

        listed = await deadletters("list")
        shown = await deadletters("show", "audit/1", "--data")
        discarded = await deadletters("discard", "audit/1", "--yes")
        resubmitted = await deadletters("resubmit", "--all", "--yes")

        assert [each["name"] for each in listed["deadLetters"]] == ["audit/1", "audit/2", "audit/3"]
        assert (shown["deadLetter"]["id"], "Renamed" in shown["deadLetter"]["data"]) == ("k-1", True)
        assert discarded["discarded"] == ["audit/1"]
        assert resubmitted["resubmitted"] == ["audit/2", "audit/3"]
        assert resubmitted["otherSubscriptions"] == []
        assert [each.message.message_id for each in outlet.dead_letters.peek(0, 10)] == []
        # As a smoke test receives its event.
        stream = stream_of(read_streams(environment), "audit")
        async with open_session(stream, await choose(stream, None, None), "k", 60) as session:
            received = [await session.receive(10) for _ in range(2)]
        assert [None if each is None else each.message_id for each in received] == ["k-2", "k-3"]


class Looking:
    """In place of the signal that ends a console: gets its state and a page, and lets it end."""

    def __init__(self, output: pytest.CaptureFixture[str], page: str) -> None:
        self._output = output
        self._page = page
        self.streams: list[dict[str, Any]] = []
        self.page = ""

    async def wait(self) -> None:
        address = self._output.readouterr().out.split()[-1]
        async with aiohttp.ClientSession() as session:
            # An answer waits for the first readings, but on a busy machine not long enough.
            while not self._knows_all():
                self.streams = json.loads(await self._get(session, f"{address}state.json"))["streams"]
            self.page = await self._get(session, f"{address}{self._page}")

    async def _get(self, session: aiohttp.ClientSession, url: str) -> str:
        async with session.get(url) as answer:
            return await answer.text()

    def _knows_all(self) -> bool:
        """Return True if every part is known, and the first stream is current."""
        levels = [each["status"]["level"] for each in self.streams]
        return bool(levels) and "unknown" not in levels and not self.streams[0]["stale_since"]


async def test_the_console_shows_every_stream_and_one_that_cannot_be_read_hides_no_other(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = FILE.replace('queue = "audit"', 'queue = "gone"\nconnection = "AUDIT_BUS"')
    (tmp_path / "relay.toml").write_text(gone)
    other = {"AUDIT_BUS": environment["SERVICEBUS"], "AUDIT_BUS_ADMIN": environment["SERVICEBUS_ADMIN"]}
    looking = Looking(capsys, "streams/audit/")
    monkeypatch.setattr("outbox_relay.operator.cli.console.stop_signal", lambda: looking)

    ended = await relay_command(environment | other, "console", "--port", "0")

    assert ended.code == 0, ended.err
    default, audit = looking.streams
    assert (default["status"]["level"], default["stale_since"], default["snapshot"]["problems"]) == ("ok", "", [])
    assert [each["name"] for each in default["snapshot"]["subscriptions"]] == ["all", "names"]
    # What does not need its namespace is known of it.
    assert (audit["name"], audit["destination"]) == ("audit", "queue 'gone' of AUDIT_BUS")
    assert (audit["status"]["level"], audit["snapshot"]["flow"]["quarantined"]) == ("warning", 0)
    problems = {each["what"]: each["text"] for each in audit["snapshot"]["problems"]}
    assert problems.keys() == {"subscriptions", "status of the topic"}
    assert all("Check AUDIT_BUS_ADMIN" in each for each in problems.values())
    known = audit["snapshot"]["known"]
    assert (known["subscriptions"]["stale"], known["waiting"]["stale"]) == (True, False)
    assert "audit → queue &#39;gone&#39; of AUDIT_BUS" in looking.page


async def test_provision_creates_the_containers_of_every_stream(
    cosmos: CosmosServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "relay.toml").write_text(
        '[outboxes.default]\n[outboxes.shop]\ncontainer = "shop"\ndatabase = "other"\n' + FILE.strip()
    )
    monkeypatch.setenv("RELAY_FILE", str(file))

    ended = await provision_command.run(connection_string=cosmos.connection_string)

    assert ended == 0
    made = {each.partition(":")[0] for each in capsys.readouterr().out.splitlines()}
    own = {"outbox/data", "outbox/leases", "outbox/quarantine", "outbox/quarantine-audit"}
    assert made == own | {"other/shop", "other/leases", "other/quarantine-shop", "other/quarantine-shop-audit"}
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        shop = client.get_database_client("other").get_container_client("shop")
        properties = await shop.read()
    assert (properties["partitionKey"]["paths"], properties["defaultTtl"]) == (["/partitionKey"], -1)
