"""The console where rules have generations: an event is shown in the streams of its commit time alone."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from azure.cosmos.aio import CosmosClient

from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_relay.changefeed import connect_async
from outbox_relay.changefeed.ulid import at as ulid_at
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import ManualClock
from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.backends.sql.install import install, install_rules
from outbox_relay.operator.console.observer import Observer
from outbox_relay.operator.console.ports import Sources
from relay.backends.sql.rows import position_time
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.routes.generations import Timeline
from tests.support.console import InMemoryTopic
from tests.support.leases import TriggerLeases
from tests.support.operators import relay_command
from tests.support.outbox import event
from tests.support.sql_deployment import FEED, TABLE, SqlDeployment

# All events go to one destination, and later to the other; then their type is another one, too.
FILE = """
changed_rules = "later"
types = ["{type}"]
{outbox}
[destinations.default]
[destinations.audit]
queue = "audit"

[[routes]]
to = ["{to}"]
"""
BEFORE, NOW = {"type": "domainEvent", "to": "default"}, {"type": "order", "to": "audit"}
SQL_OUTBOX = f'[outboxes.default]\nfeed = "{TABLE}"\nshards = 1\n'
# A time of the past, in seconds since 1970.
START = 1_780_000_000

SERVICEBUS = {"SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ=="}


class World:
    """An outbox with two streams, whose rules have changed."""

    def __init__(
        self, environment: dict[str, str], folder: Path, outbox: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.environment = environment | {"RELAY_FILE": str(folder / "relay.toml")}
        self._file, self._outbox, self._clock = folder / "relay.toml", outbox, clock
        self.rules = [self.deployed(each)[0].rules for each in (BEFORE, NOW)]

    def deployed(self, file: dict[str, str]) -> list[Settings]:
        self._file.write_text(FILE.format(outbox=self._outbox, **file))
        return sorted(read_streams(self.environment), key=lambda each: each.stream)

    def timeline(self, begins_at: int) -> Timeline:
        """The rules before, and from this time on those of now."""
        before, now = (each.text for each in self.rules if each is not None)
        return Timeline.of(before).extend(begins_at).change(now, begins_at).extend(begins_at + 60)

    async def store(self, timeline: Timeline) -> None:
        timelines = open_backend(self.deployed(NOW)[0]).open_timelines()
        try:
            stored = await timelines.read()
            if stored is None:
                await timelines.create(timeline)
            else:
                await timelines.replace(timeline, stored.etag)
        finally:
            await timelines.close()

    @asynccontextmanager
    async def observers(self) -> AsyncIterator[list[Observer]]:
        """Open an observer of `audit` and one of `default`, each with the rules of now."""
        made = []
        async with AsyncExitStack() as opened:
            for each in self.deployed(NOW):
                backend = open_backend(each)
                sources = Sources(backend.open_outbox(), InMemoryTopic(), backend.open_store())
                opened.push_async_callback(sources.close)
                made.append(Observer(sources, clock=self._clock))
            yield made

    async def explained(self, identifier: str) -> list[str]:
        """Return the words of `explain` about an event, first for `audit`, then for `default`."""
        self.deployed(NOW)
        run = await relay_command(self.environment, "explain", identifier, "--key", "k")
        found = dict(re.findall(r"^stream (\w+), to .*: the event (is [\w ]+?)(?: \(|$)", run.out, re.MULTILINE))
        return [found["audit"], found["default"]]


async def shown(observer: Observer) -> tuple[int | None, int | None, Sequence[str], Sequence[str]]:
    """Return the counts of committed and accepted events, and the stages in the recent events and the timeline."""
    snapshot = await observer.look()
    timeline = await observer.timeline("k", 10, data=False)
    assert [*snapshot.problems, *timeline.problems] == []
    return (
        snapshot.flow.committed,
        snapshot.flow.published,
        [f"{each.id} {each.stage}" for each in snapshot.recent],
        [f"{each.id} {each.stage}" for each in timeline.events],
    )


async def assert_each_stream_has_its_own(world: World) -> None:
    async with world.observers() as [audit, default]:
        assert await shown(default) == (1, 1, ["e1 published"], ["e1 published"])
        assert await shown(audit) == (1, 1, ["e2 published"], ["e2 published"])
    assert await world.explained("e1") == ["is not for this stream", "is published"]
    assert await world.explained("e2") == ["is published", "is not for this stream"]


async def test_an_event_of_a_container_is_accepted_in_the_stream_of_its_time_alone(tmp_path: Path) -> None:
    clock = ManualClock(float(START))
    async with CosmosServer(clock=clock) as server:
        specs = [*(container_argument(*each) for each in CONTAINERS), f"{DATABASE}/quarantine-audit:/partitionKey"]
        provision(server.account, [ContainerSpec.parse(each) for each in specs])
        world = World({"COSMOS": server.connection_string, **SERVICEBUS}, tmp_path, clock=lambda: clock.now)
        async with CosmosClient.from_connection_string(server.connection_string) as client:
            leases = [TriggerLeases(client, prefix=prefix) for prefix in ("", "audit.")]
            await leases[0].data.create_item(event("e1", "k"))
            clock.now += 10
            await leases[0].data.create_item(event("e2", "k") | {"type": "order"})
            await world.store(world.timeline(START + 5))
            for each in leases:
                await each.pass_all()

            await assert_each_stream_has_its_own(world)


async def created(sql: SqlDeployment, tmp_path: Path) -> World:
    """Create an SQL outbox with the tables of both streams and of the generations."""
    sql.create()
    session = await connect_async(sql.url)
    await install(session, "relay.item_audit")
    await install_rules(session)
    await session.close()
    return World({"SQL": sql.url, **SERVICEBUS}, tmp_path, SQL_OUTBOX)


def pass_all(sql: SqlDeployment) -> bytes:
    """Let both streams pass everything; returns the last position."""
    last = sql.read()[-1]
    for consumer in ("relay", "relay-audit"):
        sql.pass_to(last, consumer=consumer)
    return last


async def test_an_event_of_a_feed_is_accepted_in_the_stream_of_its_time_alone(
    sql: SqlDeployment, tmp_path: Path
) -> None:
    world = await created(sql, tmp_path)
    sql.named("e1")
    sql.read()
    earlier = ulid_at(datetime.fromtimestamp(START, UTC)).hex()
    sql.connection.execute(f"update {FEED} set ulid = %s::uuid", (earlier,))
    sql.named("e2")
    await world.store(world.timeline(position_time(pass_all(sql))))

    await assert_each_stream_has_its_own(world)


async def test_what_got_its_position_after_the_rules_had_changed_does_not_wait_where_it_was(
    sql: SqlDeployment, tmp_path: Path
) -> None:
    world = await created(sql, tmp_path)
    changed = world.timeline(START)
    await world.store(Timeline(changed.generations[:1], START))
    sql.named("e1")

    async with world.observers() as [audit, default]:
        assert await shown(default) == (1, 0, ["e1 committed"], ["e1 committed"])
        assert await shown(audit) == (0, 0, [], [])
        await world.store(changed)
        sql.read()
        assert await shown(default) == (0, 0, [], [])
        assert await shown(audit) == (1, 0, ["e1 committed"], ["e1 committed"])
        assert default.latest.flow.waiting == 0
        pass_all(sql)
        assert await shown(default) == (0, 0, [], [])
        assert await shown(audit) == (1, 1, ["e1 published"], ["e1 published"])
