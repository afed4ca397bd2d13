"""The entities file, entities that are deleted when unused, and the record of the latest messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from outbox_relay.emulators.properties import parse_duration
from outbox_relay.emulators.servicebus.administration.catalog import IdleWatch
from outbox_relay.emulators.servicebus.ends import Entity
from outbox_relay.emulators.servicebus.entities import Entities, EntitiesError
from outbox_relay.emulators.servicebus.entity_types import DuplicateDetection, ManagementSettings, QueueEntity
from outbox_relay.emulators.servicebus.filters import CorrelationFilter, TrueFilter
from outbox_relay.emulators.servicebus.journal import Fate, Journal
from outbox_relay.emulators.servicebus.message import Property
from outbox_relay.emulators.servicebus.queue import MessageQueue, QueueSettings
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.session_queue import SessionQueue
from outbox_relay.emulators.servicebus.timers import system_clock
from outbox_relay.emulators.servicebus.topic import Queue
from packages.emulators.tests.servicebus.fakes import START_MS, FakeClock, Receiver, a_message
from packages.emulators.tests.servicebus.plain_http import management_client

ROOT = Path(__file__).resolve().parents[4]


def document(**namespace: Any) -> dict[str, Any]:
    found = {"Name": "sbemulatorns", "Queues": [], "Topics": [], **namespace}
    return {"UserConfig": {"Namespaces": [found], "Logging": {"Type": "File"}}}


def problems(wrong: Any) -> str:
    with pytest.raises(EntitiesError) as raised:
        Entities.from_document(wrong)
    return str(raised.value)


def test_the_projects_own_file_has_the_topic_the_relay_needs() -> None:
    entities = Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")

    [topic] = entities.topics
    subscriptions = {each.name: each for each in topic.subscriptions}
    assert topic.name == "domain-events"
    assert topic.sending.duplicates is not None
    assert topic.sending.duplicates.window_ms == 300_000
    assert all(each.receiving.requires_session for each in topic.subscriptions)
    assert isinstance(subscriptions["all"].rules[0].filter, TrueFilter)
    assert subscriptions["names"].rules[0].filter == CorrelationFilter(
        {Property.SUBJECT: "ContactNameUpdatedEvent"}
    )


def test_a_file_may_have_comments_and_slashes_in_its_strings(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(
        """{ // a comment with "quotes"
        "UserConfig": {"Namespaces": [{"Name": "n", /* "Queues": 1, */ "Queues": [{"Name": "a//b"}]}],
        "Logging": {"Type": "File"}}}"""
    )

    assert [queue.name for queue in Entities.from_file(path).queues] == ["a//b"]


def test_a_file_that_is_not_json_says_where(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text('{\n "UserConfig": ]')

    with pytest.raises(EntitiesError, match="line 2, column 16"):
        Entities.from_file(path)


def test_properties_left_out_have_the_formats_defaults() -> None:
    [queue] = Entities.from_document(document(Queues=[{"Name": "q"}])).queues

    assert queue.receiving.lock_ms == 60_000
    assert queue.receiving.max_delivery_count == 3
    assert queue.receiving.default_ttl_ms == 3_600_000
    assert queue.sending.duplicates is None
    assert not queue.sending.partitioned


def test_everything_wrong_is_named_in_one_error() -> None:
    text = problems(
        document(
            Queues=[
                {
                    "Name": "q",
                    "Properties": {
                        "LockDuration": "PT6M",
                        "MaxDeliveryCount": 0,
                        "RequiresSession": "yes",
                        "DefaultMessageTimeToLive": "soon",
                        "Nonsense": 1,
                    },
                },
                {"Name": "Q"},
                {"Name": "-bad-"},
                {},
            ],
            Topics=[
                {
                    "Name": "t",
                    "Subscriptions": [
                        {
                            "Name": "s",
                            "Properties": {"ForwardTo": "no"},
                            "Rules": [
                                {"Name": "1", "Properties": {"FilterType": "Magic"}},
                                {"Name": "2", "Properties": {"FilterType": "Correlation"}},
                                {
                                    "Name": "3",
                                    "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a ="}},
                                },
                            ],
                        }
                    ],
                }
            ],
        )
    )

    for wrong in (
        "Queues[0].Properties.LockDuration is 'PT6M'",
        "Queues[0].Properties.MaxDeliveryCount must be",
        "Queues[0].Properties.RequiresSession must be true or false",
        "Queues[0].Properties.DefaultMessageTimeToLive is wrong",
        "Queues[0].Properties.Nonsense is not a known property",
        "has 'Q' more than once",
        "'-bad-'",
        "Queues[3].Name is missing",
        "forward to 'no', which is no queue",
        "Rules[0].Properties.FilterType is 'Magic'",
        "Rules[1].Properties.CorrelationFilter must have at least one",
        "Rules[2].Properties.SqlFilter.SqlExpression is not a valid filter",
    ):
        assert wrong in text


@pytest.mark.parametrize("wrong", [[], {}, {"UserConfig": {}}, {"UserConfig": {"Namespaces": [], "Logging": {}}}])
def test_a_document_of_another_shape_is_refused(wrong: Any) -> None:
    assert problems(wrong)


def test_a_topic_can_be_made_partitioned_without_saying_so_in_the_file() -> None:
    entities = Entities.from_document(document(Topics=[{"Name": "t", "Subscriptions": [{"Name": "s"}]}]))

    assert entities.with_partitioning("t").topics[0].sending.partitioned
    with pytest.raises(EntitiesError, match="no queue or topic 'u'"):
        entities.with_partitioning("u")


def test_every_entity_that_detects_duplicates_can_be_given_another_window() -> None:
    detecting = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT5M"}
    entities = Entities.from_document(
        document(Topics=[{"Name": "t", "Properties": detecting}, {"Name": "plain"}])
    ).with_duplicate_window(600_000)

    windows = {topic.name: topic.sending.duplicates for topic in entities.topics}
    assert windows == {"t": DuplicateDetection(600_000), "plain": None}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT5S", 5_000), ("P1DT2H3M4.5S", 93_784_500), ("PT1H", 3_600_000), ("P7D", 604_800_000)],
)
def test_durations_are_read_as_iso_8601_has_them(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "5S", "P1M", "PT1H ", "-PT1S"])
def test_what_is_no_duration_of_days_and_less_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no ISO 8601 duration"):
        parse_duration(text)


# Entities deleted when unused, on a stopped clock


LIMIT_MS = 300_000


class Idle:
    """A queue under watch."""

    def __init__(self, clock: FakeClock) -> None:
        self.attached = False
        self.deleted: list[Entity] = []
        self.queue = Queue(
            QueueEntity("q", management=ManagementSettings(auto_delete_on_idle_ms=LIMIT_MS)), clock.timers
        )
        self.watch = IdleWatch(clock.timers, lambda path: self.attached, self._delete)
        self.watch.watch(self.queue)

    def _delete(self, entity: Entity) -> None:
        self.deleted.append(entity)
        entity.delete()


@pytest.fixture
def idle(clock: FakeClock) -> Idle:
    return Idle(clock)


def test_an_idle_entity_is_deleted_once_its_time_is_over(idle: Idle, clock: FakeClock) -> None:
    clock.advance(LIMIT_MS - 1)
    assert idle.deleted == []
    clock.advance(1)
    clock.advance(LIMIT_MS)

    assert idle.deleted == [idle.queue]


def test_a_use_puts_it_off(idle: Idle, clock: FakeClock) -> None:
    clock.advance(1_000)
    idle.queue.inlet.accessed_ms = clock.now_ms

    clock.advance(LIMIT_MS - 1)
    assert idle.deleted == []
    clock.advance(1)
    assert idle.deleted == [idle.queue]


def test_a_link_puts_it_off_for_as_long_as_it_is_there(idle: Idle, clock: FakeClock) -> None:
    idle.attached = True
    for _ in range(5):
        clock.advance(LIMIT_MS)
    assert idle.deleted == []

    idle.attached = False
    clock.advance(LIMIT_MS)
    assert idle.deleted == [idle.queue]


@pytest.mark.parametrize("limit", [None, 10 * LIMIT_MS])
def test_what_it_is_set_up_with_last_holds(idle: Idle, clock: FakeClock, limit: int | None) -> None:
    management = replace(idle.queue.management, auto_delete_on_idle_ms=limit)
    idle.queue.update(replace(idle.queue.entity, management=management))
    idle.watch.watch(idle.queue)

    clock.advance(9 * LIMIT_MS)
    assert idle.deleted == []
    clock.advance(LIMIT_MS)
    assert bool(idle.deleted) is (limit is not None)


async def test_an_entity_without_use_or_links_goes_and_its_name_is_free() -> None:
    later_ms = 0
    limit = timedelta(milliseconds=LIMIT_MS)
    async with (
        ServiceBusServer(Entities(), edges=None, clock=lambda: system_clock() + later_ms) as server,
        management_client(server) as management,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
    ):
        await management.create_queue("target")
        await management.create_queue("idle", auto_delete_on_idle=limit)
        await management.create_queue("used", auto_delete_on_idle=limit)
        await management.create_queue("forwards", auto_delete_on_idle=limit, forward_to="target")
        forwards = await management.get_queue("forwards")
        assert isinstance(forwards.auto_delete_on_idle, timedelta)
        assert forwards.auto_delete_on_idle.days == 10_675_199
        circle = await management.create_queue("circle", auto_delete_on_idle=limit, requires_session=True)
        circle.forward_to = "circle"
        await management.update_queue(circle)
        assert (await management.get_queue("circle")).auto_delete_on_idle == limit
        await management.delete_queue("circle")

        async with client.get_queue_receiver("used"):
            later_ms = LIMIT_MS + 60_000
            server.broker.namespace.timers.run_due()

            names = [queue.name async for queue in management.list_queues()]
            assert names == ["forwards", "target", "used"]
            with pytest.raises(ServiceBusAuthenticationError):
                await client.get_queue_sender("idle").__aenter__()
            await management.create_queue("idle")


# The broker's record of the latest messages, on a stopped clock


@pytest.fixture(params=[MessageQueue, SessionQueue])
def queue(request: pytest.FixtureRequest, clock: FakeClock) -> MessageQueue:
    dead = MessageQueue(QueueSettings("q/$DeadLetterQueue", 1_000, None, None, False), clock.timers)
    made: MessageQueue = request.param(QueueSettings("q", 1_000, 2, None, True), clock.timers, dead)
    return made


def enqueue(queue: MessageQueue, *ids: str, ttl_ms: int | None = None) -> None:
    for each in ids:
        queue.enqueue(a_message(message_id=each, session_id="s", ttl_ms=ttl_ms))


class Consumer:
    """Takes messages of the queue, or of its only session."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue, self.receiver = queue, Receiver()
        self.session = queue.accept("s", self.receiver) if isinstance(queue, SessionQueue) else None

    def take(self, *, delete: bool = False) -> object:
        if isinstance(self.queue, SessionQueue) and self.session is not None:
            taken = self.queue.take_from(self.session, self.receiver, delete=delete)
        else:
            taken = self.queue.take(self.receiver, delete=delete)
        assert taken is not None
        return taken[1].token if taken[1] else None


def fates(queue: MessageQueue) -> dict[str | None, tuple[str, int]]:
    return {each.message_id: (each.fate.value, each.deliveries) for each in queue.journal.after(0)}


def test_it_has_what_became_of_each_message(queue: MessageQueue, clock: FakeClock) -> None:
    enqueue(queue, "completed", "deleted", "poison", "waiting")
    consumer = Consumer(queue)
    token = consumer.take()
    clock.advance(10)
    queue.complete(token)  # type: ignore[arg-type]
    consumer.take(delete=True)
    queue.abandon(consumer.take())  # type: ignore[arg-type]
    queue.abandon(consumer.take())  # type: ignore[arg-type]

    assert fates(queue) == {
        "completed": ("completed", 1),
        "deleted": ("completed", 1),
        "poison": ("dead-lettered", 2),
        "waiting": ("waiting", 0),
    }
    assert queue.journal.completed == 2
    stories = {each.message_id: each for each in queue.journal.after(0, "s")}
    assert (stories["completed"].accepted_ms, stories["completed"].ended_ms) == (START_MS, START_MS + 10)
    assert stories["poison"].reason == "MaxDeliveryCountExceeded"
    assert queue.journal.after(0, "another") == []


def test_an_expired_message_is_dead_lettered(queue: MessageQueue, clock: FakeClock) -> None:
    enqueue(queue, "old", ttl_ms=5)

    clock.advance(6)

    assert fates(queue) == {"old": ("dead-lettered", 0)}
    assert queue.journal.after(0)[0].reason == "TTLExpiredException"


def test_only_what_changed_since_is_answered_in_the_order_of_the_changes(queue: MessageQueue) -> None:
    enqueue(queue, "a", "b", "c")
    before = queue.journal.change

    queue.complete(Consumer(queue).take())  # type: ignore[arg-type]
    enqueue(queue, "d")

    assert [each.message_id for each in queue.journal.after(before)] == ["a", "d"]
    assert [each.message_id for each in queue.journal.after(0)] == ["b", "c", "a", "d"]
    assert queue.journal.after(queue.journal.change) == []


def test_it_forgets_the_messages_that_changed_longest_ago(queue: MessageQueue) -> None:
    queue.journal = Journal(limit=2)
    enqueue(queue, "a", "b", "c")

    assert [each.message_id for each in queue.journal.after(0)] == ["b", "c"]
    queue.complete(Consumer(queue).take())  # type: ignore[arg-type]
    assert queue.journal.completed == 1
    assert {each.fate for each in queue.journal.after(0)} == {Fate.WAITING}
