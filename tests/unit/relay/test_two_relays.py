"""Two relays in one process, as in an app with an outbox of each kind: neither changes what the other reports."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from relay.backends.cosmos.backend import CosmosRelay
from relay.core.errors import PublishError
from relay.core.pipeline import Relay
from tests.fuzz.service import NeverCheckpointed, Shelf
from tests.support.commits import commit_time
from tests.support.telemetry import Telemetry
from tests.unit.relay.topics import FakeTopic

TTL_S = 1000


def relay(topic: FakeTopic) -> CosmosRelay:
    return Relay(NeverCheckpointed(), topic.publisher(), Shelf(), duplicate_window_s=600)


def document(identifier: str, action: str = "A") -> dict[str, Any]:
    made = {"id": identifier, "partitionKey": "k", "type": "domainEvent", "_ts": commit_time(), "ttl": TTL_S}
    return made | {"data": {"action": action}}


async def test_the_time_left_of_a_failed_batch_is_reported_though_another_relay_delivers_the_same_events(
    reported: Telemetry,
) -> None:
    failing, delivering = relay(FakeTopic(by_id={"a": "amqp:internal-error"})), relay(FakeTopic())

    with pytest.raises(PublishError):
        await failing.handle([document("a")], "i1")
    await delivering.handle([document("a")], "i2")

    assert reported.metrics().gauge("relay.ttl.headroom") == pytest.approx(TTL_S, abs=30)


async def test_each_relay_has_attributes_of_its_own_for_fifty_actions(reported: Telemetry) -> None:
    first, second = relay(FakeTopic()), relay(FakeTopic())
    await first.handle([document(f"a{number}", f"First{number}") for number in range(60)], "i1")
    reported.forget()

    await second.handle([document("b", "Second")], "i2")

    assert reported.metrics().by("relay.events.published", "action") == {"Second": 1}


async def test_each_relay_logs_an_attempt_at_information_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    first, second = relay(FakeTopic()), relay(FakeTopic())

    with caplog.at_level(logging.DEBUG, "relay.telemetry.attempt"):
        for number, each in enumerate((first, second, first, second)):
            await each.handle([document(f"e{number}")], f"i{number}")

    levels = [each.levelname for each in caplog.records if vars(each).get("action") == "relay_batch"]
    assert levels == ["INFO", "INFO", "DEBUG", "DEBUG"]


async def test_a_shard_that_two_relays_read_has_the_greater_age(reported: Telemetry) -> None:
    first, second = relay(FakeTopic()), relay(FakeTopic())

    with (
        first.telemetry.shard_ages.watched(0, lambda: 3.0),
        second.telemetry.shard_ages.watched(0, lambda: 2.0),
        second.telemetry.shard_ages.watched(1, lambda: 1.0),
    ):
        meanwhile = reported.metrics()

    ages_s: dict[Any, Any] = meanwhile.by("relay.feed.age", "shard")
    assert ages_s == {0: 3.0, 1: 1.0}


async def test_what_a_relay_was_behind_with_is_not_reported_after_it_is_gone(reported: Telemetry) -> None:
    failing = relay(FakeTopic(by_id={"a": "amqp:internal-error"}))
    with pytest.raises(PublishError):
        await failing.handle([document("a")], "i1")
    assert reported.metrics().gauge("relay.ttl.headroom") is not None

    del failing
    await asyncio.sleep(0)  # the event loop still runs the callback that has the error as its argument
    gc.collect()

    assert reported.metrics().gauge("relay.ttl.headroom") is None
