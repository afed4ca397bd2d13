"""The observer's view of an outbox, its positions, a quarantine and a topic."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from local.watching.changes import Changes
from outbox_relay.operator.console.model import Arrival, Delivery, Problem, Stage, Subscription
from outbox_relay.operator.console.status import headline
from outbox_relay.operator.console.stream import encoded
from outbox_relay.operator.console.timeline import steps
from relay.core.errors import StoreError
from relay.core.holds import parked_marker_item
from tests.support.console_deployment import NOW, Deployment, size_of
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S


@pytest.fixture
def relayed() -> Deployment:
    return Deployment()


async def test_an_event_is_counted_as_committed_then_as_published(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    flow = (await relayed.observer.look()).flow
    assert (flow.committed, flow.waiting, flow.published, flow.lag_s) == (1, 1, 0, 10.0)

    relayed.outbox.pass_all()
    snapshot = await relayed.observer.look()

    assert (snapshot.flow.waiting, snapshot.flow.published, snapshot.flow.lag_s) == (0, 1, 0.0)
    assert [(each.id, each.stage, each.published_at) for each in snapshot.recent] == [("a", Stage.PUBLISHED, NOW)]


async def test_an_event_in_quarantine_is_never_counted_as_published(relayed: Deployment) -> None:
    for name in ("a", "b", "c", "in parts"):
        relayed.outbox.commit(name)
    relayed.quarantine("b")
    relayed.quarantine("c", "key-parked")
    relayed.quarantine(None, lsn=4, order=0)
    relayed.items.put(parked_marker_item("k", "r1"))
    relayed.outbox.pass_all()

    snapshot = await relayed.observer.look()

    assert (snapshot.flow.published, snapshot.flow.quarantined, snapshot.flow.parked) == (1, 3, 1)
    assert [each.stage for each in snapshot.recent] == [
        *(Stage.QUARANTINED, Stage.PARKED, Stage.QUARANTINED, Stage.PUBLISHED),
    ]
    assert [(group.reason, group.count) for group in snapshot.quarantine] == [
        *(("message-too-large", 2), ("key-parked", 1)),
    ]


async def test_what_was_passed_is_not_counted_before_quarantine_could_be_read(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    relayed.quarantine("a")
    relayed.outbox.pass_all()
    relayed.items.answers = [StoreError("no route to the store")] * 2

    snapshot = await relayed.observer.look()
    assert (snapshot.flow.published, snapshot.flow.waiting) == (None, None)
    assert Problem("quarantine", "no route to the store") in snapshot.problems

    snapshot = await relayed.observer.look()
    assert (snapshot.flow.published, snapshot.flow.waiting, snapshot.problems) == (0, 0, ())


async def test_nothing_is_counted_before_a_long_quarantine_has_been_read_to_its_end(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_PAGE", 10), ("_PAGES", 2), ("_KNOWN", 20)):
        monkeypatch.setattr(f"outbox_relay.operator.console.backlog.{name}", value)
    for number in range(30):
        relayed.quarantine(f"old-{number}")
    relayed.outbox.commit("a")
    relayed.quarantine("a")
    relayed.outbox.pass_all()

    flow = (await relayed.observer.look()).flow
    assert (flow.published, flow.waiting) == (None, None)
    snapshot = await relayed.observer.look()

    assert (snapshot.flow.published, snapshot.flow.waiting) == (0, 0)
    assert [each.what for each in snapshot.problems if "more records than are remembered" in each.text] == [
        "quarantine"
    ]


async def test_records_that_come_late_by_another_hosts_clock_are_found(relayed: Deployment) -> None:
    relayed.quarantine("x", quarantinedAt="2026-01-01T00:00:20.000000+00:00")
    relayed.outbox.commit("a")
    relayed.outbox.pass_all()
    await relayed.observer.look()

    relayed.outbox.commit("b")
    relayed.quarantine("b", quarantinedAt="2026-01-01T00:00:05.000000+00:00")
    relayed.outbox.pass_all()

    assert (await relayed.observer.look()).flow.published == 1


async def test_an_event_that_comes_again_is_not_counted_again(relayed: Deployment) -> None:
    first = relayed.outbox.commit("a")
    await relayed.observer.look()
    relayed.outbox.committed.append(replace(first, place=(7, 0)))
    relayed.outbox.positions_at["0"] = (6, 0)
    flow = (await relayed.observer.look()).flow
    assert (flow.committed, flow.waiting) == (1, 1)  # it waits at its new place

    relayed.outbox.pass_all()
    await relayed.observer.look()
    relayed.outbox.committed.append(replace(first, place=(9, 0)))
    flow = (await relayed.observer.look()).flow

    assert (flow.committed, flow.waiting, flow.published) == (1, 0, 1)


async def test_an_event_that_comes_again_while_quarantine_cannot_be_read_is_not_counted_again(
    relayed: Deployment,
) -> None:
    first = relayed.outbox.commit("a")
    relayed.outbox.pass_all()
    relayed.items.answers = [StoreError("no route to the store")] * 2
    await relayed.observer.look()

    relayed.outbox.committed.append(replace(first, place=(7, 0)))
    relayed.outbox.pass_all()
    flow = (await relayed.observer.look()).flow

    assert (flow.committed, flow.waiting, flow.published) == (1, 0, 1)


async def test_the_events_of_a_split_partition_wait_under_its_children(relayed: Deployment) -> None:
    for key in ("left", "right"):
        relayed.outbox.commit(f"{key}-1", key)
        relayed.outbox.commit(f"{key}-2", key)
    await relayed.observer.look()

    relayed.outbox.keys = {"left": "1", "right": "2"}
    relayed.outbox.positions_at = {"1": (1, 0), "2": None}
    snapshot = await relayed.observer.look()

    assert [(each.name, each.behind) for each in snapshot.partitions] == [("1", 1), ("2", 2)]
    assert (snapshot.flow.published, snapshot.flow.waiting) == (1, 3)


async def test_an_event_that_turns_out_to_be_another_streams_is_not_counted(relayed: Deployment) -> None:
    for name in ("a", "b", "c"):
        relayed.outbox.commit(name)
    relayed.outbox.positions_at["0"] = (1, 0)
    await relayed.observer.look()
    with relayed.observer.follow("k") as state:
        before = state()
        # `a` was passed and is counted, and the console has never read the last one.
        relayed.outbox.elsewhere = [("k", "a"), ("k", "b"), ("k", "never read")]
        snapshot = await relayed.observer.look()
        assert state() != before

    assert (snapshot.flow.committed, snapshot.flow.published, snapshot.flow.waiting) == (2, 1, 1)
    assert [each.id for each in snapshot.recent] == ["c", "a"]
    assert [each.behind for each in snapshot.partitions] == [1]
    relayed.outbox.pass_all()
    assert (await relayed.observer.look()).flow.published == 2


async def test_the_headroom_is_that_of_the_event_that_is_deleted_first(relayed: Deployment) -> None:
    relayed.outbox.commit("a", expires_at=NOW + 500)
    relayed.outbox.commit("b", expires_at=NOW + 100)
    assert (await relayed.observer.look()).flow.headroom_s == 100.0

    relayed.outbox.pass_all()

    assert (await relayed.observer.look()).flow.headroom_s is None


async def test_rates_and_latencies_are_of_what_happens_while_it_looks(relayed: Deployment) -> None:
    for number in range(20):
        relayed.outbox.commit(f"old-{number}", committed_at=NOW - 3600)
    relayed.outbox.pass_all()
    flow = (await relayed.observer.look()).flow
    assert (flow.committed_s, flow.published_s, flow.latency_p50_ms) == (0.0, 0.0, None)

    for number in range(10):
        relayed.outbox.commit(f"new-{number}", committed_at=NOW + 0.25)
    relayed.now += 0.5
    relayed.outbox.pass_all()
    flow = (await relayed.observer.look()).flow
    assert (flow.committed_s, flow.published_s) == (1.0, 1.0)
    assert (flow.latency_p50_ms, flow.latency_p99_ms) == (250.0, 250.0)

    relayed.now += 61
    flow = (await relayed.observer.look()).flow
    assert (flow.committed_s, flow.published_s, flow.latency_p50_ms) == (0.0, 0.0, None)


@pytest.mark.parametrize(
    ("created_at", "latency_ms"),
    [
        ("1970-01-12T13:46:50.870000Z", 30.0),
        ("1970-01-12T13:46:49.990000Z", 910.0),  # committed in the next second
        ("1970-01-12T13:46:51.000000Z", None),  # after the second of the commit: another clock
        ("1970-01-12T13:46:48.000000Z", None),
        ("1970-01-12T13:46:50.870000", None),  # it is unknown in which zone
        ("yesterday", None),
        (None, None),
    ],
)
async def test_a_latency_counts_from_the_writers_clock_where_only_the_second_of_the_commit_is_known(
    relayed: Deployment, created_at: str | None, latency_ms: float | None
) -> None:
    relayed.now = NOW + 0.8
    await relayed.observer.look()
    relayed.outbox.commit("a", committed_at=NOW, created_at=created_at)
    relayed.now = NOW + 0.9
    relayed.outbox.pass_all()

    assert (await relayed.observer.look()).flow.latency_p50_ms == latency_ms


@pytest.mark.parametrize(
    ("created_at", "lag_s"),
    [
        (None, 0.2),  # between the look before, at 0.5 s, and this one, at 0.9 s
        ("1970-01-12T13:46:50.800000Z", 0.1),
        ("1970-01-12T13:46:50.100000Z", 0.2),  # it was not there at 0.5 s
    ],
)
async def test_the_age_of_what_waits_is_estimated_between_two_looks(
    relayed: Deployment, created_at: str | None, lag_s: float
) -> None:
    relayed.now = NOW + 0.5
    await relayed.observer.look()
    relayed.outbox.commit("a", committed_at=NOW, created_at=created_at)
    relayed.now = NOW + 0.9

    assert (await relayed.observer.look()).flow.lag_s == lag_s


async def test_what_happened_while_nobody_looked_is_counted_and_is_no_rate(relayed: Deployment) -> None:
    await relayed.observer.look()
    relayed.now += 600
    for number in range(50):
        relayed.outbox.commit(f"{number}", committed_at=relayed.now - 300)
    relayed.outbox.pass_all()

    flow = (await relayed.observer.look()).flow

    assert (flow.committed, flow.published, flow.published_s, flow.latency_p50_ms) == (50, 50, 0.0, None)


@pytest.mark.parametrize("pause_s", [0, 600])
async def test_the_time_that_an_event_took_is_not_the_consoles_own_delay(
    relayed: Deployment, pause_s: int
) -> None:
    if pause_s:
        await relayed.observer.look()
        relayed.now += pause_s
    relayed.outbox.commit("a", committed_at=relayed.now - 40.5)
    relayed.outbox.pass_all()

    (latest,) = (await relayed.observer.look()).recent

    assert (latest.stage, latest.took_s) == (Stage.PUBLISHED, None)
    assert latest.not_measured == "it was accepted before the console looked"


@pytest.mark.parametrize(("accepted", "stage"), [(False, Stage.EXPIRED), (True, Stage.PUBLISHED)])
async def test_an_event_that_expired_while_it_waited_counts_as_accepted_only_if_the_topic_has_it(
    relayed: Deployment, accepted: bool, stage: Stage
) -> None:
    relayed.outbox.commit("a", expires_at=NOW + 5)
    await relayed.observer.look()
    relayed.now += 6
    relayed.outbox.pass_all()
    if accepted:
        relayed.topic.arrivals = {"k": [Delivery("a", "all", Arrival.WAITING, accepted_at=NOW + 1)]}

    snapshot = await relayed.observer.look()

    assert [each.stage for each in snapshot.recent] == [stage]
    assert snapshot.flow.published == accepted
    assert headline(snapshot).text == (
        "Every committed event has been accepted by the topic."
        if accepted
        else "No event waits. 1 event was discarded, or expired."
    )
    labels = [step.label for step in steps(snapshot.recent[0])]
    assert labels[1] == ("Accepted" if accepted else "Expired")


async def test_an_expired_event_that_the_topic_shows_later_has_been_accepted(relayed: Deployment) -> None:
    relayed.outbox.commit("a", expires_at=NOW + 5)
    await relayed.observer.look()
    relayed.now += 6
    relayed.outbox.pass_all()
    await relayed.observer.look()
    relayed.topic.arrivals = {"k": [Delivery("a", "all", Arrival.WAITING, accepted_at=NOW + 1)]}

    snapshot = await relayed.observer.look()

    assert snapshot.flow.published == 1
    assert snapshot.recent[0].stage is Stage.PUBLISHED


async def expire(relayed: Deployment, *names: str) -> None:
    """Have events expire before the relay passes them and what waits with them; the console looks each time."""
    await relayed.observer.look()
    relayed.now += 6
    relayed.outbox.deleted |= set(names)
    relayed.outbox.pass_all()
    await relayed.observer.look()


@pytest.mark.parametrize("kept", [500, 1])
async def test_a_timeline_has_an_event_that_expired_where_it_was_committed(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.backlog.KEPT", kept)
    relayed.outbox.commit("a")
    relayed.outbox.commit("b", expires_at=NOW + 5)
    relayed.outbox.commit("c")
    await expire(relayed, "b")

    found = await relayed.observer.timeline("k", 10, data=False)
    relayed.topic.arrivals = {"k": [Delivery("b", "all", Arrival.WAITING, accepted_at=NOW + 1)]}
    accepted = await relayed.observer.timeline("k", 10, data=False)

    assert [(each.id, str(each.stage)) for each in found.events] == [
        *(("a", "published"), ("b", "expired"), ("c", "published")),
    ]
    assert [(step.label, step.at) for step in steps(found.events[1])] == [
        ("Committed", 1_000_000.0),
        ("Expired", NOW + 5),
    ]
    assert [str(each.stage) for each in accepted.events] == ["published"] * 3


async def test_the_latest_events_that_expired_are_remembered(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.progress._EXPIRED", 2)
    for name in ("a", "b", "c"):
        relayed.outbox.commit(name, expires_at=NOW + 5)
    await expire(relayed, "a", "b", "c")

    found = await relayed.observer.timeline("k", 10, data=False)

    assert [(each.id, str(each.stage)) for each in found.events] == [("b", "expired"), ("c", "expired")]


async def test_accepted_times_of_the_topic_are_preferred(relayed: Deployment) -> None:
    await relayed.observer.look()
    relayed.outbox.commit("a", committed_at=NOW + 0.25)
    relayed.outbox.pass_all()
    delivery = Delivery("a", "all", Arrival.WAITING, accepted_at=NOW + 0.375)
    relayed.topic.arrivals = {"k": [delivery]}
    relayed.now += 0.5

    snapshot = await relayed.observer.look()

    (latest,) = snapshot.recent
    assert (latest.published_at, latest.deliveries) == (NOW + 0.375, (delivery,))
    assert snapshot.flow.latency_p50_ms == 125.0


@pytest.mark.parametrize(
    ("again", "took_s", "why"), [(True, None, "it was published again"), (False, 0.125, None)]
)
async def test_the_time_that_an_event_took_is_not_that_until_an_operator_published_it_again(
    relayed: Deployment, again: bool, took_s: float | None, why: str | None
) -> None:
    await relayed.observer.look()
    relayed.outbox.commit("a", committed_at=NOW + 0.25)
    relayed.outbox.pass_all()
    first = Delivery("a", "all", Arrival.DEAD_LETTERED, accepted_at=NOW + 0.375)
    relayed.topic.arrivals = {"k": [first]}
    assert [each.took_s for each in (await relayed.observer.look()).recent] == [0.125]
    relayed.now += 600
    relayed.topic.arrivals = {"k": [replace(first, arrival=Arrival.WAITING, accepted_at=NOW + 600, again=again)]}

    [latest] = (await relayed.observer.look()).recent
    [in_timeline] = (await relayed.observer.timeline("k", 10, data=False)).events

    assert (latest.published_at, latest.took_s, latest.not_measured) == (NOW + 0.375, took_s, why)
    assert (in_timeline.published_at, in_timeline.took_s, in_timeline.not_measured) == (NOW + 0.375, took_s, why)
    [accepted] = [each for each in steps(in_timeline) if each.kind == "accepted"]
    assert (accepted.after_s, accepted.why) == (took_s, None if why is None else f"not measured: {why}")
    changes = list(Changes().of(json.loads(encoded(latest))))
    assert [(each.after_s, each.not_measured) for each in changes if each.what == "accepted"] == [(took_s, why)]
    assert [each.after_s for each in changes if each.what == "at"] == [None if again else 599.75]


async def test_the_latest_fifty_are_shown_the_newest_first(relayed: Deployment) -> None:
    for number in range(120):
        relayed.outbox.commit(str(number))

    recent = (await relayed.observer.look()).recent

    assert [each.id for each in recent] == [str(number) for number in range(119, 69, -1)]


async def test_a_defect_of_an_adapter_does_not_end_the_page(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def positions() -> None:
        raise KeyError("secret")

    monkeypatch.setattr(relayed.outbox, "positions", positions)

    (problem,) = (await relayed.observer.look()).problems

    assert (problem.what, "secret" in problem.text) == ("positions", False)


async def test_a_snapshot_is_new_only_where_something_has_changed(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    relayed.outbox.pass_all()
    first = await relayed.observer.look()
    relayed.now += 0.5

    later = await relayed.observer.look()
    assert (later.number, later.at, later.known_of("waiting").at) == (first.number, NOW + 0.5, NOW + 0.5)
    relayed.outbox.commit("b")
    assert (await relayed.observer.look()).number > first.number


async def test_no_further_events_are_read_while_too_many_wait(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.progress._HELD", 1500)
    for number in range(4000):
        relayed.outbox.commit(str(number))

    snapshot = await relayed.observer.look()
    assert snapshot.flow.committed == 2000
    assert [each.what for each in snapshot.problems] == ["outbox"]

    relayed.outbox.pass_all()
    for _ in range(3):
        snapshot = await relayed.observer.look()
    assert (snapshot.flow.committed, snapshot.flow.published, snapshot.problems) == (4000, 4000, ())


async def test_memory_does_not_grow_with_events_and_keys_that_are_done(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.progress._REMEMBERED", 1000)
    sizes = []
    for _ in range(4):
        for number in range(5000):
            total = len(relayed.outbox.committed)
            relayed.outbox.commit(f"event-{total}", f"key-{number}", expires_at=NOW + 100, place=(total + 1, 0))
        relayed.outbox.pass_all()
        for _ in range(2):
            await relayed.observer.look()
        sizes.append(size_of(relayed.observer, besides=relayed))
    assert relayed.observer.latest.flow.published == 20_000
    # From the second round on, as many latencies are kept as ever.
    assert sizes[3] < sizes[1] * 1.1 < 2_000_000


async def test_a_look_says_whether_there_was_any_news(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    assert await relayed.observer.look_at_flow()
    assert not await relayed.observer.look_at_flow()

    relayed.outbox.pass_all()
    assert await relayed.observer.look_at_flow()
    assert not await relayed.observer.look_at_flow()

    relayed.outbox.fails = "the account does not answer"
    assert await relayed.observer.look_at_flow()


async def test_a_timeline_with_more_records_than_are_read_says_nothing_is_published(
    relayed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.timeline._RECORDS", 2)
    relayed.outbox.commit("a")
    relayed.outbox.pass_all()
    relayed.quarantine("x")
    whole = await relayed.observer.timeline("k", 10, data=False)
    relayed.quarantine("y")
    part = await relayed.observer.timeline("k", 10, data=False)

    assert [str(each.stage) for each in whole.events if each.id == "a"] == ["published"]
    assert [str(each.stage) for each in part.events if each.id == "a"] == ["committed"]
    assert [each.what for each in part.problems] == ["quarantine"]
    assert whole.problems == ()


async def test_it_looks_only_while_somebody_watches() -> None:
    relayed = Deployment()
    async with relayed.observer as observer:
        relayed.outbox.commit("a")
        for _ in range(5):
            await asyncio.sleep(0)
        assert observer.latest.number == 0

        async with asyncio.timeout(WATCHDOG_S):
            snapshot = await observer.changed(0)
            while snapshot.flow.committed == 0:
                snapshot = await observer.changed(snapshot.number)
            relayed.outbox.pass_all()
            while snapshot.flow.published == 0:
                snapshot = await observer.changed(snapshot.number)

    assert all(part.closed for part in (relayed.outbox, relayed.topic, relayed.items, relayed.hosts))


async def test_it_stops_looking_some_time_after_the_last_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LINGER_S", "_BUSY_S", "_IDLE_S", "_COUNTS_BUSY_S", "_COUNTS_IDLE_S"):
        monkeypatch.setattr(f"outbox_relay.operator.console.observer.{name}", 0.001)
    relayed = Deployment()
    looks = 0

    async def news(limit: int) -> list[Any]:
        nonlocal looks
        looks += 1
        return []

    monkeypatch.setattr(relayed.outbox, "news", news)
    async with relayed.observer as observer:
        relayed.topic.counts = [Subscription("all", 1, 0)]
        await asyncio.wait_for(observer.changed(0), WATCHDOG_S)
        before = -1
        async with asyncio.timeout(WATCHDOG_S):
            while looks != before:
                before = looks
                await look_again()
        relayed.topic.counts = [Subscription("all", 2, 0)]
        snapshot = await asyncio.wait_for(observer.changed(observer.latest.number), WATCHDOG_S)

    assert (snapshot.subscriptions, looks > before) == ((Subscription("all", 2, 0),), True)
