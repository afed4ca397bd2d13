"""The observer's view of a quarantine, a topic, the hosts, and what stops the whole relay."""

from __future__ import annotations

import pytest

from outbox_relay.operator.console.model import DeadLetterGroup, Subscription
from outbox_relay.operator.console.ports import Attempt
from relay.backends.findings import Finding
from relay.backends.outbox import key_name
from relay.core.errors import StoreError
from relay.core.holds import parked_marker_item
from tests.support.console_deployment import NOW, Deployment


@pytest.fixture
def relayed() -> Deployment:
    return Deployment()


async def test_a_quarantine_of_many_pages_is_read_to_its_end_before_anything_is_counted(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.backlog._PAGE", 100)
    monkeypatch.setattr("outbox_relay.operator.console.counts._RECORDS", 100)
    for number in range(450):
        relayed.quarantine(f"old-{number}", quarantinedAt="2026-01-01T00:00:00.000000+00:00")
    relayed.outbox.commit("a")
    relayed.outbox.commit("b")
    relayed.quarantine("b", "message-refused", quarantinedAt="2026-01-01T00:00:00.000001+00:00")
    relayed.outbox.pass_all()

    snapshot = await relayed.observer.look()

    assert (snapshot.flow.published, snapshot.flow.quarantined) == (1, 451)
    assert [(each.reason, each.count, len(each.examples)) for each in snapshot.quarantine] == [
        *(("message-too-large", 450, 10), ("message-refused", 1, 1)),
    ]


async def test_partitions_say_how_far_they_are_and_what_keeps_them(relayed: Deployment) -> None:
    relayed.outbox.positions_at = {"10": None, "2": (0, 0)}
    relayed.outbox.keys = {"k": "10"}
    relayed.outbox.commit("a", committed_at=NOW - 60)
    relayed.outbox.commit("b")
    relayed.hosts.retries = {"10": Attempt(2, "PublishError: the topic is disabled"), "2": Attempt(1, None)}
    await relayed.observer.look()
    relayed.outbox.positions_at["2"] = (9, 0)
    relayed.now += 5

    snapshot = await relayed.observer.look()

    idle, stuck = snapshot.partitions
    assert (stuck.name, stuck.behind, stuck.oldest_s, stuck.moved_at) == ("10", 2, 65.0, None)
    assert (stuck.retry, stuck.error) == (2, "PublishError: the topic is disabled")
    assert (idle.name, idle.behind, idle.moved_at, idle.retry) == ("2", 0, NOW + 5, None)
    assert snapshot.flow.lag_s == 65.0


async def test_what_stops_the_whole_relay_is_read_with_its_remedy_every_ten_seconds(relayed: Deployment) -> None:
    lock = Finding.error("the leases have a lock, 75 s old", "Delete that document.")
    topic = Finding.error("the topic 't' is Disabled", "Set its status to Active.")
    relayed.outbox.blocked, relayed.topic.blocked = [lock], [topic]
    assert (await relayed.observer.look()).obstacles == (topic, lock)

    relayed.outbox.blocked = relayed.topic.blocked = []
    assert (await relayed.observer.look()).obstacles == (topic, lock)
    relayed.now += 11

    assert (await relayed.observer.look()).obstacles == ()


async def test_a_page_that_the_host_withholds_is_its_partitions_state(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    relayed.hosts.retries = {"0": Attempt(withheld="The reader's MaxDepth of 64 has been exceeded.")}

    [partition] = (await relayed.observer.look()).partitions

    assert (partition.withheld, partition.retry) == ("The reader's MaxDepth of 64 has been exceeded.", None)


async def test_a_part_that_cannot_be_read_is_a_problem_and_the_rest_stays(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    relayed.topic.counts = [Subscription("all", 3, 1)]
    relayed.topic.letters = {"all": [DeadLetterGroup("all", "schema", 1)]}
    before = await relayed.observer.look()
    assert before.problems == ()

    relayed.topic.counts = [Subscription("all", 3, 2)]
    relayed.topic.fails, relayed.outbox.fails = "the topic is gone", "the account does not answer"
    after = await relayed.observer.look()

    said = {each.what: each.text for each in after.problems}
    assert said["outbox"] == said["positions"] == "the account does not answer"
    assert said["subscriptions"] == "the topic is gone"
    assert (after.flow.committed, after.subscriptions, after.dead_letters) == (
        *(before.flow.committed, before.subscriptions, before.dead_letters),
    )

    relayed.topic.fails = relayed.outbox.fails = None
    assert (await relayed.observer.look()).problems == ()


async def test_records_are_grouped_when_their_number_changes_and_now_and_then(relayed: Deployment) -> None:
    async def shown() -> list[tuple[str, int]]:
        return [(group.reason, group.count) for group in (await relayed.observer.look()).quarantine]

    assert await shown() == []
    relayed.quarantine("a")
    assert await shown() == [("message-too-large", 1)]
    relayed.quarantine("b", "key-parked")
    assert await shown() == [("key-parked", 1), ("message-too-large", 1)]

    relayed.items.take("r0", "k")
    relayed.quarantine("c", "key-parked")

    relayed.now += 31
    assert await shown() == [("key-parked", 2)]


async def test_the_first_parked_keys_are_named_as_long_as_they_are_parked(relayed: Deployment) -> None:
    for number in reversed(range(23)):
        relayed.items.put(parked_marker_item(f"k{number:02}", "r0"))
    relayed.items.put(parked_marker_item("a" * 2000, "r0"))

    first = await relayed.observer.look()
    relayed.items.take("parked", "k00")
    second = await relayed.observer.look()

    long = key_name("a" * 2000)
    assert (first.flow.parked, first.parked_keys) == (24, (long, *(f"k{number:02}" for number in range(19))))
    assert (second.flow.parked, second.parked_keys) == (23, (long, *(f"k{number:02}" for number in range(1, 20))))


async def test_dead_letters_are_peeked_when_their_number_changes_and_now_and_then(relayed: Deployment) -> None:
    async def shown() -> list[str]:
        return [group.reason for group in (await relayed.observer.look()).dead_letters]

    relayed.topic.counts = [Subscription("all", 0, 1), Subscription("names", 0, 0)]
    relayed.topic.letters = {"all": [DeadLetterGroup("all", "first", 1)]}
    assert await shown() == ["first"]

    relayed.topic.letters = {"all": [DeadLetterGroup("all", "second", 1)]}
    assert await shown() == ["first"]
    relayed.topic.counts = [Subscription("all", 0, 2)]
    assert await shown() == ["second"]

    relayed.topic.letters = {"all": [DeadLetterGroup("all", "third", 1)]}
    assert await shown() == ["second"]
    relayed.now += 31
    assert await shown() == ["third"]
    relayed.topic.counts = []
    assert await shown() == []


async def test_a_part_of_a_timeline_that_cannot_be_read_is_its_problem(relayed: Deployment) -> None:
    relayed.outbox.commit("a", data="{}")
    relayed.quarantine("a")
    relayed.items.put(parked_marker_item("k", "r0"))
    relayed.outbox.pass_all()

    whole = await relayed.observer.timeline("k", 10, data=True)
    assert [(each.id, str(each.stage), each.data) for each in whole.events] == [("a", "quarantined", "{}")]
    assert (whole.parked_since is not None, whole.problems) == (True, ())
    relayed.items.answers, relayed.topic.fails = [StoreError("no route to the store")], "the topic is gone"
    part = await relayed.observer.timeline("k", 10, data=False)

    assert [(each.id, str(each.stage), each.data) for each in part.events] == [("a", "committed", None)]
    assert [each.text for each in part.problems] == ["no route to the store", "the topic is gone"]
