"""The whole way of a batch, on a source, a publisher and a quarantine in memory: no Azure package is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from relay.errors import (
    AccountingError,
    ConfigurationError,
    PublishError,
    QuarantineError,
    SourceError,
)
from relay.events import Document, Event
from relay.pipeline import Relay
from relay.results import KeyOutcome
from relay.settings import OnPoison
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine, InMemorySource

ROOT = Path(__file__).resolve().parents[3]

WITHOUT_AZURE = """
import asyncio, sys

class NoAzure:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "azure":
            raise ImportError(f"{name} is not for the core")

sys.meta_path.insert(0, NoAzure())

import relay.pipeline, relay.events, relay.results, relay.ports
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine, InMemorySource

relay = relay.pipeline.Relay(InMemorySource(), InMemoryPublisher(), InMemoryQuarantine(), duplicate_window_s=600)
batch = [{"id": "e1", "partitionKey": "k", "type": "domainEvent", "data": {"action": "A"}}]
print(asyncio.run(relay.handle(batch, "i1")).published)
"""


class Running:
    """A relay with everything around it."""

    def __init__(self, on_poison: OnPoison = OnPoison.SKIP) -> None:
        self.source = InMemorySource()
        self.publisher = InMemoryPublisher()
        self.quarantine = InMemoryQuarantine()
        self.relay: Relay[Sequence[Document]] = Relay(
            self.source, self.publisher, self.quarantine, duplicate_window_s=600, on_poison=on_poison
        )

    def stored(self) -> list[tuple[str, str]]:
        return [(item.id, str(item.reason)) for item in self.quarantine.records]


def document(identifier: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    made = {"id": identifier, "partitionKey": key, "type": "domainEvent", "committedAt": int(time.time())}
    return made | {"data": {"action": "A"}} | changes


def test_the_core_runs_without_any_azure_package() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_AZURE], cwd=ROOT, capture_output=True, text=True, timeout=50
    )

    assert (ran.stdout, ran.returncode) == ("1\n", 0), ran.stderr


async def test_events_are_published_by_key_and_the_rest_is_accounted_for() -> None:
    running = Running()
    batch = [document("a1", "a"), document("b1", "b"), document("c", type="contact"), document("a2", "a", data=7)]

    outcome = await running.relay.handle([*batch, document("a3", "a")], "i1")

    assert running.publisher.accepted == {"a": ["a1", "a3"], "b": ["b1"]}
    assert running.stored() == [("a2", "data-not-object")]
    assert (outcome.published, outcome.ignored, outcome.quarantined) == (3, 1, {"data-not-object": 1})


async def test_what_fails_raises_and_the_retry_sends_only_the_rest() -> None:
    running = Running()
    await running.relay.handle([document("e1")], "i1")
    running.publisher.broken = ConfigurationError("the topic is disabled")

    with pytest.raises(PublishError, match=r"1 event\(s\) of 1 partition key"):
        await running.relay.handle([document("e1"), document("e2")], "i1")
    running.publisher.broken = None
    outcome = await running.relay.handle([document("e1"), document("e2")], "i1", 1)

    assert (outcome.already_published, outcome.published) == (1, 1)
    assert running.publisher.accepted == {"k": ["e1", "e2"]}


async def test_one_keys_failure_leaves_the_others_and_what_is_poison_is_stored_all_the_same() -> None:
    running = Running()
    running.publisher.refused = {"a1": "amqp:not-allowed"}

    with pytest.raises(PublishError, match="'a': 2 event"):
        await running.relay.handle(
            [document("a1", "a"), document("a2", "a"), document("b1", "b"), document("x", "c", data=7)], "i1"
        )

    assert running.publisher.accepted == {"b": ["b1"]}
    assert running.stored() == [("x", "data-not-object")]


async def test_what_is_refused_for_long_is_quarantined() -> None:
    running = Running()
    running.publisher.refused = {"e1": "amqp:not-allowed"}
    batch = [document("e1"), document("e2")]

    for retry_count in range(5):
        with pytest.raises(PublishError):
            await running.relay.handle(batch, "i1", retry_count)
    await running.relay.handle(batch, "i1", 5)

    assert running.stored() == [("e1", "message-refused")]
    assert running.publisher.accepted == {"k": ["e2"]}


async def test_park_stores_what_follows_now_and_later_until_the_release() -> None:
    running = Running(OnPoison.PARK)
    await running.relay.handle([document("e1"), document("e2", data=7), document("e3")], "i1")
    await running.relay.handle([document("e4")], "i2")
    running.quarantine.parked.clear()
    await running.relay.handle([document("e5")], "i3")

    assert running.publisher.accepted == {"k": ["e1", "e5"]}
    assert running.stored() == [("e2", "data-not-object"), ("e3", "key-parked"), ("e4", "key-parked")]


async def test_block_holds_the_key_until_an_operator_sets_the_event_aside() -> None:
    running = Running(OnPoison.BLOCK)
    batch = [document("e1"), document("e2", data=7), document("e3"), document("o1", "other")]

    with pytest.raises(PublishError, match="quarantine add"):
        await running.relay.handle(batch, "i1")
    assert (running.publisher.accepted, running.stored()) == ({"k": ["e1"], "other": ["o1"]}, [])


async def test_an_operators_order_is_followed_at_the_next_attempt() -> None:
    running = Running()
    running.publisher.refused = {"e1": "amqp:not-allowed"}
    with pytest.raises(PublishError):
        await running.relay.handle([document("e1"), document("e2")], "i1")
    running.quarantine.ordered.add(("k", "e1"))

    await running.relay.handle([document("e1"), document("e2")], "i1", 1)

    assert running.stored() == [("e1", "set-aside")]
    assert running.publisher.accepted == {"k": ["e2"]}
    assert running.quarantine.ordered == set()


async def test_old_events_that_the_checkpoint_has_passed_are_not_sent() -> None:
    running = Running()
    running.source.passed = {("k", "e1")}

    outcome = await running.relay.handle([document("e1", committedAt=1), document("e2", committedAt=1)], "i1")

    assert (outcome.superseded, outcome.published) == (1, 1)
    assert running.publisher.accepted == {"k": ["e2"]}


async def test_a_source_that_cannot_be_read_fails_the_attempt() -> None:
    running = Running()
    running.source.broken = True

    with pytest.raises(SourceError):
        await running.relay.handle([document("e1")], "i1")
    assert running.publisher.accepted == {}


async def test_what_cannot_be_quarantined_fails_the_attempt_after_the_rest_was_published() -> None:
    running = Running()
    running.quarantine.broken = True

    with pytest.raises(QuarantineError):
        await running.relay.handle([document("e1"), document("e2", data=7)], "i1")
    assert running.publisher.accepted == {"k": ["e1"]}


async def test_a_publisher_that_loses_an_event_is_caught() -> None:
    class Forgetful(InMemoryPublisher):
        async def publish(self, events: Mapping[str, Sequence[Event]], /, **rules: Any) -> list[KeyOutcome]:
            return await super().publish({key: its_events[1:] for key, its_events in events.items()}, **rules)

    relay = Relay(InMemorySource(), Forgetful(), InMemoryQuarantine(), duplicate_window_s=600)

    with pytest.raises(AccountingError, match="1 are accounted for"):
        await relay.handle([document("e1"), document("e2")], "i1")


async def test_closing_closes_what_it_was_given() -> None:
    running = Running()

    await running.relay.close()

    assert running.publisher.closed
    assert running.quarantine.closed
