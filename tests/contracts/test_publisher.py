"""The contract of every publisher: the one in memory, and the one to Service Bus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import OnPoison, Settings
from relay.core.errors import ConfigurationError, SendError
from relay.core.events import Event, Reason, Rejected, by_partition_key
from relay.core.fence import Clearance
from relay.core.ports import Publisher
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from tests.support.broker import refuse, set_topic_status
from tests.support.in_memory import InMemoryPublisher
from tests.support.outbox import event, sound
from tests.unit.relay.topics import FakeTopic

REFUSED = "amqp:not-allowed"
ENTITIES = Path(__file__).resolve().parents[2] / "infra" / "emulators" / "Config.json"


class Harness(ABC):
    """One publisher and its topic."""

    publisher: Publisher

    @abstractmethod
    async def refuse(self, identifier: str) -> None:
        """Refuse the content of this event from now on."""

    @abstractmethod
    async def break_down(self) -> None:
        """Accept nothing from now on."""

    @abstractmethod
    async def accepted(self, key: str) -> list[str]:
        """The ids that the topic has accepted of a partition key, in order."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._topic = self.publisher = InMemoryPublisher()

    async def refuse(self, identifier: str) -> None:
        self._topic.refused[identifier] = REFUSED

    async def break_down(self) -> None:
        self._topic.broken = ConfigurationError("the topic is disabled")

    async def accepted(self, key: str) -> list[str]:
        return self._topic.accepted.get(key, [])


class OnTopicInMemory(Harness):
    """The publisher for Service Bus, over links in memory."""

    def __init__(self) -> None:
        self._topic = FakeTopic()
        self.publisher = self._topic.publisher(senders=4, duplicate_window_s=600)

    async def refuse(self, identifier: str) -> None:
        self._topic.by_id[identifier] = REFUSED

    async def break_down(self) -> None:
        self._topic.refuses_links = OSError("no route to host")
        for link in self._topic.links:
            link.refuses_to_open = self._topic.refuses_links
        self._topic.answers = [OSError("no route to host")] * 100

    async def accepted(self, key: str) -> list[str]:
        return [str(identifier) for identifier in self._topic.ids(key)]


class OnEmulator(Harness):
    def __init__(self, server: ServiceBusServer, *, pipelined: bool) -> None:
        settings = Settings.from_environment(
            {
                "COSMOS": "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=YQ==;",
                "SERVICEBUS": server.connection_string,
                "RELAY_PIPELINED": str(pipelined),
                "RELAY_SENDERS": "4",
            }
        )
        self._server = server
        self.publisher = ServiceBusPublisher.from_settings(settings, messages.plain)

    async def refuse(self, identifier: str) -> None:
        await refuse(self._server.admin_port, identifier, REFUSED)

    async def break_down(self) -> None:
        await set_topic_status(self._server.admin_port, "Disabled")

    async def accepted(self, key: str) -> list[str]:
        held = self._server.broker.namespace.outlet("domain-events/Subscriptions/all").messages
        entries = (entry.message for entry in held.peek(0, 10_000))
        return [str(message.message_id) for message in entries if message.session_id == key]


@pytest.fixture(params=["in memory", "links in memory", "pooled senders", "pipelined sender"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with AsyncExitStack() as stack:
        if request.param == "in memory":
            made: Harness = InMemory()
        elif request.param == "links in memory":
            made = OnTopicInMemory()
        else:
            server = await stack.enter_async_context(ServiceBusServer(Entities.from_file(ENTITIES)))
            made = OnEmulator(server, pipelined=request.param == "pipelined sender")
        yield made
        await made.publisher.close()


def of_keys(*names: str) -> dict[str, list[Event]]:
    """`a1` is event `a1` of the key `a`."""
    return by_partition_key(sound(event(name, name[0]), position) for position, name in enumerate(names))


def counts(outcome: KeyOutcome) -> dict[str, int]:
    found = {
        "published": outcome.published,
        "rejected": len(outcome.rejected),
        "held_back": len(outcome.held_back),
        "unsent": outcome.unsent,
    }
    return {name: count for name, count in found.items() if count}


async def test_every_keys_events_are_published_in_their_order(harness: Harness) -> None:
    names = [f"{key}{number}" for number in range(30) for key in "abc"]

    outcomes = await harness.publisher.publish(of_keys(*names))

    assert [(outcome.partition_key, counts(outcome)) for outcome in outcomes] == [
        (key, {"published": 30}) for key in "abc"
    ]
    for key in "abc":
        assert await harness.accepted(key) == [name for name in names if name[0] == key]


async def test_nothing_to_publish_is_no_outcome(harness: Harness) -> None:
    await harness.break_down()

    assert await harness.publisher.publish({}) == []


async def test_what_was_accepted_is_known(harness: Harness) -> None:
    await harness.publisher.publish(of_keys("a1", "a2"))

    (events,) = of_keys("a2", "a3").values()
    assert [harness.publisher.has_accepted(each) for each in events] == [True, False]


async def test_without_a_valid_clearance_nothing_is_sent(harness: Harness) -> None:
    (outcome,) = await harness.publisher.publish(of_keys("a1", "a2"), clearance=Clearance(0.0, -1e9))

    assert counts(outcome) == {"unsent": 2}
    assert outcome.error is not None
    assert await harness.accepted("a") == []


async def test_a_final_refusal_is_rejected_and_the_rest_goes_on(harness: Harness) -> None:
    await harness.refuse("a2")

    outcomes = await harness.publisher.publish(of_keys("a1", "a2", "a3", "b1"), judge=Judge(needs_evidence=False))

    assert [counts(outcome) for outcome in outcomes] == [{"published": 2, "rejected": 1}, {"published": 1}]
    (rejected,) = outcomes[0].rejected
    assert (rejected.id, rejected.partition_key, rejected.position) == ("a2", "a", 1)
    assert (rejected.reason, rejected.condition) == ("message-refused", REFUSED)
    assert await harness.accepted("a") == ["a1", "a3"]


async def test_what_follows_a_rejected_event_is_held_back_on_request(harness: Harness) -> None:
    await harness.refuse("a2")

    (outcome,) = await harness.publisher.publish(
        of_keys("a1", "a2", "a3", "a4"), judge=Judge(OnPoison.PARK, needs_evidence=False)
    )

    assert counts(outcome) == {"published": 1, "rejected": 1, "held_back": 2}
    assert [each.id for each in outcome.held_back] == ["a3", "a4"]
    assert await harness.accepted("a") == ["a1"]


async def test_a_first_refusal_stops_its_key_and_no_other(harness: Harness) -> None:
    await harness.refuse("a2")

    outcomes = await harness.publisher.publish(of_keys("a1", "a2", "a3", "b1"))

    assert [counts(outcome) for outcome in outcomes] == [{"published": 1, "unsent": 2}, {"published": 1}]
    assert isinstance(outcomes[0].error, SendError)
    assert (await harness.accepted("a"), await harness.accepted("b")) == (["a1"], ["b1"])


async def test_a_repeated_refusal_among_acceptances_is_rejected_by_the_third_attempt(harness: Harness) -> None:
    await harness.refuse("a2")
    await harness.publisher.publish(of_keys("b1", "a2"))

    (second,) = await harness.publisher.publish(of_keys("a2"))
    (third,) = await harness.publisher.publish(of_keys("a2"))

    assert counts(second) == {"unsent": 1}
    assert second.blocked_by == "a2"
    assert counts(third) == {"rejected": 1}
    assert await harness.accepted("b") == ["b1"]


@pytest.mark.parametrize("settled", [True, False])
async def test_what_is_set_aside_unsent_is_no_evidence_any_more(harness: Harness, settled: bool) -> None:
    for name in ("a2", "b2", "c2"):
        await harness.refuse(name)
    await harness.publisher.publish(of_keys("d1", "a2", "b2", "c2"))
    for _ in range(3):
        await harness.publisher.publish(of_keys("a2", "b2", "c2"))

    if settled:
        harness.publisher.note_set_aside(
            [Rejected.of(event, Reason.SET_ASIDE, "") for event in of_keys("a2")["a"]]
        )
    outcomes = await harness.publisher.publish(of_keys("b2", "c2"))

    assert [counts(outcome) for outcome in outcomes] == [{"rejected" if settled else "unsent": 1}] * 2


async def test_where_nothing_is_accepted_every_event_is_unsent(harness: Harness) -> None:
    await harness.break_down()

    outcomes = await harness.publisher.publish(of_keys("a1", "a2", "b1"))

    assert [counts(outcome) for outcome in outcomes] == [{"unsent": 2}, {"unsent": 1}]
    assert all(isinstance(outcome.error, SendError) for outcome in outcomes)
