"""The instruments: what each adds up to, under which attributes, in which buckets."""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import Any

import pytest

from relay.core.events import Event, Reason
from relay.telemetry import instruments
from relay.telemetry.gauges import Batch, Headroom, ShardAges
from relay.telemetry.instruments import BoundedActions, counted_together
from tests.support.telemetry import Telemetry
from tests.unit.relay.topics import event

MINUTE, HOUR, DAY = 60, 3600, 86_400
ACTIONS = BoundedActions()


def acting(*actions: str, **changes: Any) -> list[Event]:
    return [event(f"e{n}", data={"action": action}, **changes) for n, action in enumerate(actions)]


def test_documents_are_counted_as_they_came(reported: Telemetry) -> None:
    instruments.received(documents=10, ignored=3, retried=False)
    first = reported.metrics()
    instruments.received(documents=10, ignored=3, retried=True)
    second = reported.metrics()

    assert (first.total("relay.documents.received"), first.total("relay.documents.ignored")) == (10, 3)
    assert first.total("relay.events.redelivered") == 0
    assert second.total("relay.events.redelivered") == 7


def test_what_did_not_happen_is_no_row(reported: Telemetry) -> None:
    instruments.received(documents=4, ignored=0, retried=False)
    instruments.already_published(0)
    assert reported.metrics().names == {"relay.documents.received"}

    instruments.received(documents=4, ignored=4, retried=True)
    assert reported.metrics().names == {"relay.documents.received", "relay.documents.ignored"}

    with counted_together():
        pass
    assert reported.metrics().names == set()


def test_an_accepted_transfer_counts_with_its_events_by_action(reported: Telemetry) -> None:
    instruments.accepted(acting("A", "B", "A"), 0.25, ACTIONS)
    instruments.accepted(acting("B"), 0.5, ACTIONS)

    seen = reported.metrics()
    assert seen.by("relay.events.published", "action") == {"A": 2, "B": 2}
    assert seen.total("relay.sends") == 2
    assert (seen.count("relay.send.duration"), seen.sum("relay.send.duration")) == (2, 0.75)
    assert (seen.count("relay.batch.events"), seen.sum("relay.batch.events")) == (2, 4)
    assert seen.count("relay.lag") == 0


def test_lag_is_counted_for_each_event_whose_commit_time_is_known(reported: Telemetry) -> None:
    now = int(time.time())
    instruments.accepted([*acting("A", "A", _ts=now - 100), *acting("A", _ts="soon"), *acting("A")], 0.1, ACTIONS)

    seen = reported.metrics()
    assert seen.count("relay.lag") == 2
    assert seen.sum("relay.lag") == pytest.approx(200, abs=30)


def test_of_an_attempt_everything_is_recorded_at_its_end_and_what_comes_later_at_once(reported: Telemetry) -> None:
    now = int(time.time())
    with counted_together():
        instruments.accepted(acting("A", "B", _ts=now), 0.25, ACTIONS)
        instruments.accepted(acting("A"), 0.5, ACTIONS)
        assert reported.metrics().names == set()
        late = contextvars.copy_context()
    first = reported.metrics()
    late.run(instruments.accepted, acting("B"), 1.0, ACTIONS)
    second = reported.metrics()

    assert first.by("relay.events.published", "action") == {"A": 2, "B": 1}
    assert (first.total("relay.sends"), first.sum("relay.batch.events"), first.count("relay.lag")) == (2, 3, 2)
    assert first.sum("relay.send.duration") == 0.75
    assert (second.total("relay.sends"), second.sum("relay.send.duration")) == (1, 1.0)


def test_where_the_clocks_differ_lag_is_never_below_zero(reported: Telemetry) -> None:
    instruments.accepted(acting("A", _ts=int(time.time()) + 3600), 0.1, ACTIONS)

    seen = reported.metrics()
    assert (seen.count("relay.lag"), seen.sum("relay.lag")) == (1, 0)


async def test_what_an_attempts_tasks_publish_is_counted_when_it_ends_however_it_ends(reported: Telemetry) -> None:
    async def send() -> None:
        instruments.accepted(acting("A", "B"), 0.1, ACTIONS)

    async def attempt() -> None:
        with counted_together():
            await asyncio.gather(send(), send())
            assert reported.metrics().total("relay.events.published") == 0
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await attempt()

    seen = reported.metrics()
    assert seen.by("relay.events.published", "action") == {"A": 2, "B": 2}
    assert seen.total("relay.sends") == 2


def test_what_is_published_after_an_attempt_counts_by_itself(reported: Telemetry) -> None:
    with counted_together():
        instruments.accepted(acting("A"), 0.1, ACTIONS)
    instruments.accepted(acting("A"), 0.1, ACTIONS)

    assert reported.metrics().total("relay.events.published") == 2


def test_attempts_at_the_same_time_count_apart(reported: Telemetry) -> None:
    with counted_together():
        with counted_together():
            instruments.accepted(acting("A"), 0.1, ACTIONS)
        instruments.accepted(acting("B"), 0.1, ACTIONS)
        assert reported.metrics().by("relay.events.published", "action") == {"A": 1}

    assert reported.metrics().by("relay.events.published", "action") == {"B": 1}


def test_quarantined_documents_are_counted_by_reason(reported: Telemetry) -> None:
    for reason in (Reason.ID_EMPTY, Reason.SET_ASIDE, Reason.ID_EMPTY):
        instruments.quarantined(reason)

    assert reported.metrics().by("relay.events.quarantined", "reason") == {"id-empty": 2, "set-aside": 1}


def test_what_the_ledger_knew_is_counted(reported: Telemetry) -> None:
    instruments.already_published(3)

    assert reported.metrics().total("relay.ledger.hits") == 3


def test_fifty_actions_have_attributes_of_their_own_and_all_later_ones_share_one() -> None:
    actions = BoundedActions()
    names = [f"A{number}" for number in range(52)]

    first = [actions.attributes(name) for name in names]

    assert first == [{"action": name} for name in names[:50]] + [{"action": "other"}] * 2
    assert [actions.attributes(name) for name in names] == first


def test_an_action_of_more_than_128_characters_has_no_attribute_of_its_own() -> None:
    actions = BoundedActions()

    found = [actions.attributes("x" * length)["action"] for length in (129, 128, 1)]

    assert found == ["other", "x" * 128, "x"]


def test_the_least_time_left_is_reported_where_there_is_one(reported: Telemetry) -> None:
    assert reported.metrics().gauge("relay.ttl.headroom") is None
    headroom = Headroom()
    instruments.observe(headroom, ShardAges())
    headroom.begin(Batch(acting("A", _ts=int(time.time()), ttl=600), [], lambda event: False))

    assert reported.metrics().gauge("relay.ttl.headroom") == pytest.approx(600, abs=30)


def test_what_is_stored_with_a_series_stays_as_it_is(reported: Telemetry) -> None:
    instruments.accepted(acting("A", _ts=int(time.time())), 0.1, ACTIONS)

    seen = reported.metrics()
    assert seen.bounds("relay.lag") == [
        *(0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE),
        *(HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY),
    ]
    assert seen.bounds("relay.send.duration") == [
        *(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
    ]
    assert seen.bounds("relay.batch.events") == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert {name: seen.units[name] for name in seen.names} == {
        "relay.events.published": "{event}",
        "relay.sends": "{send}",
        "relay.lag": "s",
        "relay.send.duration": "s",
        "relay.batch.events": "{event}",
    }
