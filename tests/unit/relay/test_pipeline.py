"""A relay from one invocation to the next, over links in memory, and a batch that comes as text."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from relay.backends.cosmos.backend import CosmosBackend, CosmosRelay
from relay.backends.cosmos.source import ChangeBatch
from relay.config.settings import OnPoison, Settings
from relay.core.errors import ChangesError, PublishError
from relay.core.pipeline import Relay
from tests.fuzz.service import NeverCheckpointed
from tests.support.commits import commit_time
from tests.support.in_memory import InMemoryQuarantine
from tests.unit.relay.topics import FakeTopic

SETTINGS = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:9/;AccountKey=AAAA;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey=AAAA",
}


def relay(
    topic: FakeTopic,
    quarantine: InMemoryQuarantine | None = None,
    on_poison: OnPoison = OnPoison.SKIP,
    **changes: Any,
) -> CosmosRelay:
    return Relay(
        NeverCheckpointed(),
        topic.publisher(**changes),
        quarantine or InMemoryQuarantine(),
        duplicate_window_s=600,
        on_poison=on_poison,
    )


def document(identifier: str, key: str = "k") -> dict[str, Any]:
    made = {"id": identifier, "partitionKey": key, "type": "domainEvent", "_ts": commit_time()}
    return made | {"data": {"action": "A"}}


async def test_refusals_alike_are_counted_over_the_invocations_of_a_process() -> None:
    topic, quarantine = FakeTopic(by_id=dict.fromkeys("abc", "amqp:not-allowed")), InMemoryQuarantine()
    running = relay(topic, quarantine)

    for _ in range(2):
        for identifier in "abc":
            with pytest.raises(PublishError):
                await running.handle([document(identifier, f"key-{identifier}")], "i")
    with pytest.raises(PublishError, match="refused alike"):
        await running.handle([document("a", "key-a")], "i", 2)

    assert quarantine.records == []


async def test_from_the_fourth_attempt_on_an_error_that_may_pass_is_traced_to_its_event() -> None:
    topic = FakeTopic(by_id={"b": "amqp:internal-error"})
    running = relay(topic)
    batch = [document("a"), document("b"), document("c")]

    for retry_count in (0, 1, 2):
        with pytest.raises(PublishError):
            await running.handle(batch, "i", retry_count)
        assert topic.ids() == []
    with pytest.raises(PublishError, match="'b' alone holds up 'k'"):
        await running.handle([*batch, document("o", "other")], "i", 3)

    assert topic.ids() == ["a"]


async def test_each_attempt_begins_with_other_keys_so_that_failing_ones_do_not_hide_the_rest() -> None:
    topic = FakeTopic(by_id={f"e{number}": "amqp:internal-error" for number in range(4)})
    running = relay(topic, pauses_s=())
    batch = [*(document(f"e{number}", f"k{number}") for number in range(4)), document("s", "sound")]

    for retry_count in range(3):
        with pytest.raises(PublishError):
            await running.handle(batch, "i1", retry_count)

    assert topic.ids("sound") == ["s"]


async def test_the_time_of_an_attempt_begins_before_its_publishing() -> None:
    topic = FakeTopic()
    running: CosmosRelay = Relay(
        NeverCheckpointed(), topic.publisher(), InMemoryQuarantine(), duplicate_window_s=600, attempt_timeout_s=0
    )

    with pytest.raises(PublishError, match="RELAY_ATTEMPT_TIMEOUT_S"):
        await running.handle([document("e1")], "i1")

    assert topic.transfers == []


@pytest.mark.parametrize(
    ("policy", "sent", "stored"),
    [
        (OnPoison.SKIP, ["a", "c", "d"], ["b"]),
        (OnPoison.PARK, ["a"], ["b", "c", "d"]),
        (OnPoison.BLOCK, ["a"], []),
    ],
)
async def test_what_follows_a_refused_event_is_the_owners_choice(
    policy: OnPoison, sent: list[str], stored: list[str]
) -> None:
    topic, quarantine = FakeTopic(by_id={"b": "amqp:not-allowed"}), InMemoryQuarantine()
    running = relay(topic, quarantine, policy, duplicate_window_s=600)
    batch = [document(each) for each in "abcd"]

    for retry_count in range(2):
        with pytest.raises(PublishError):
            await running.handle(batch, "i", retry_count)
    if policy is OnPoison.BLOCK:
        with pytest.raises(PublishError, match="RELAY_ON_POISON"):
            await running.handle(batch, "i", 2)
    else:
        await running.handle(batch, "i", 2)

    assert (topic.ids(), [item.id for item in quarantine.records]) == (sent, stored)


# What comes as text is parsed within the attempt, so that its failure is logged and retried like any other


async def test_text_that_is_not_json_fails_the_attempt_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    made = CosmosBackend(Settings.from_environment(SETTINGS)).relay

    with caplog.at_level(logging.ERROR, "relay"), pytest.raises(ChangesError, match="check --scan"):
        await made.handle(ChangeBatch('[{"id": '), "i1")

    assert [getattr(record, "action", None) for record in caplog.records] == ["relay_failed"]
    await made.close()


async def test_documents_of_other_types_in_the_text_are_counted() -> None:
    made = CosmosBackend(Settings.from_environment(SETTINGS)).relay

    outcome = await made.handle(ChangeBatch('[{"id": "1", "type": "contact"}, null]'), "i1")

    assert (outcome.ignored, outcome.documents) == (2, 2)
    await made.close()
