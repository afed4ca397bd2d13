"""A process's relay from one invocation to the next, on a topic, a quarantine and leases in memory."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from relay.assembly import CosmosRelay
from relay.errors import LeaseError, PublishError, QuarantineError
from relay.events import Event, Rejected
from relay.holds import Holds, Order
from relay.pipeline import Relay
from relay.settings import ATTEMPT_MARGIN_S, OnPoison
from tests.fuzz.service import NeverCheckpointed, Shelf
from tests.support import virtual_time
from tests.unit.relay.topics import FakeTopic

CUT = ServiceBusConnectionError(message="cut")


class FakeShelf(Shelf):
    """A quarantine that holds back what it is configured to.

    Attributes:
        read: How often somebody asked what is held back.
        stored: Ids of what was stored, in order.
        parked: Whether keys were parked, by call.
    """

    def __init__(self, holds: Holds | None = None, *, fails: bool = False) -> None:
        super().__init__()
        self._holds = holds or Holds()
        self._fails = fails
        self.read = 0
        self.stored: list[str] = []
        self.parked: set[bool] = set()
        self.closed = False

    async def holds(self) -> Holds:
        self.read += 1
        return self._holds

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, *, park: bool) -> None:
        if self._fails and rejected:
            raise QuarantineError("no")
        self.stored += [item.id for item in rejected]
        self.parked.add(park)
        await super().store(rejected, invocation_id, park=park)

    async def close(self) -> None:
        self.closed = True


def relay(
    topic: FakeTopic, shelf: FakeShelf | None = None, on_poison: OnPoison = OnPoison.SKIP, **changes: Any
) -> CosmosRelay:
    return Relay(
        NeverCheckpointed(),
        topic.publisher(**changes),
        shelf or FakeShelf(),
        duplicate_window_s=600,
        on_poison=on_poison,
    )


def document(identifier: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    made = {"id": identifier, "partitionKey": key, "type": "domainEvent", "_ts": int(time.time())}
    return made | {"data": {"action": "A"}} | changes


async def test_events_are_published_others_ignored_and_what_is_malformed_is_quarantined() -> None:
    topic, shelf = FakeTopic(), FakeShelf()

    outcome = await relay(topic, shelf).handle(
        [document("a"), None, document("b", data=1), document("c", type="contact"), document("d")], "i"
    )

    assert topic.ids() == ["a", "d"]
    assert shelf.stored == ["b"]
    assert (outcome.published, outcome.ignored, outcome.quarantined.total()) == (2, 2, 1)


async def test_what_was_not_accepted_raises_after_the_rest_was_stored_and_only_that_is_sent_again() -> None:
    topic, shelf = FakeTopic(by_id={"b": "amqp:internal-error"}), FakeShelf()
    running = relay(topic, shelf)
    batch = [document("a", "k1"), document("b", "k2"), document("c", "k3", data=1)]

    with pytest.raises(PublishError, match="1 event"):
        await running.handle(batch, "i")
    topic.by_id.clear()
    outcome = await running.handle(batch, "i", 1)

    assert shelf.stored == ["c"]
    assert (outcome.already_published, outcome.published, outcome.superseded) == (1, 1, 1)
    assert topic.transfers.count(["a"]) == 1


async def test_a_quarantine_that_cannot_be_written_fails_the_invocation() -> None:
    with pytest.raises(QuarantineError):
        await relay(FakeTopic(), FakeShelf(fails=True)).handle([document("a", data=1)], "i")


async def test_refusals_alike_are_counted_over_the_invocations_of_a_process() -> None:
    topic, shelf = FakeTopic(by_id=dict.fromkeys("abc", "amqp:not-allowed")), FakeShelf()
    running = relay(topic, shelf)

    for _ in range(2):
        for identifier in "abc":
            with pytest.raises(PublishError):
                await running.handle([document(identifier, f"key-{identifier}")], "i")
    with pytest.raises(PublishError, match="refused alike"):
        await running.handle([document("a", "key-a")], "i", 2)

    assert shelf.stored == []


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
        NeverCheckpointed(), topic.publisher(), FakeShelf(), duplicate_window_s=600, attempt_timeout_s=0
    )

    with pytest.raises(PublishError, match="RELAY_ATTEMPT_TIMEOUT_S"):
        await running.handle([document("e1")], "i1")

    assert topic.transfers == []


class SilentShelf(FakeShelf):
    """A quarantine that never answers a write."""

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, *, park: bool) -> None:
        await asyncio.sleep(1_000_000)


def test_a_quarantine_that_never_answers_ends_the_attempt_in_time() -> None:
    topic = FakeTopic()

    async def attempt() -> float:
        with pytest.raises(QuarantineError, match="quarantining what is set aside took longer"):
            await relay(topic, SilentShelf()).handle([document("e1"), document("bad", data=7)], "i1")
        return time.monotonic()

    assert virtual_time.run(attempt()) < ATTEMPT_MARGIN_S
    assert topic.ids() == ["e1"]


async def test_orders_are_read_at_the_start_and_by_repeated_attempts_or_always_with_park() -> None:
    skipping, parking = FakeShelf(), FakeShelf()

    for shelf, policy in ((skipping, OnPoison.SKIP), (parking, OnPoison.PARK)):
        running = relay(FakeTopic(), shelf, policy)
        for identifier, retry_count in (("a", 0), ("b", 0), ("c", 0), ("d", 1)):
            await running.handle([document(identifier)], "i", retry_count)

    assert (skipping.read, parking.read) == (2, 4)


async def test_an_operators_order_is_met_by_the_next_attempt() -> None:
    topic, shelf = FakeTopic(), FakeShelf(Holds(orders={("k", "a"): (Order(),)}))

    await relay(topic, shelf).handle([document("a"), document("b")], "i", 1)

    assert (topic.ids(), shelf.stored) == (["b"], ["a"])


@pytest.mark.parametrize(
    ("policy", "sent", "stored"),
    [(OnPoison.SKIP, ["a", "c", "d"], ["b"]), (OnPoison.PARK, ["a"], ["b", "c", "d"])],
)
async def test_what_follows_a_refused_event_is_the_owners_choice(
    policy: OnPoison, sent: list[str], stored: list[str]
) -> None:
    topic, shelf = FakeTopic(by_id={"b": "amqp:not-allowed"}), FakeShelf()
    running = relay(topic, shelf, policy, duplicate_window_s=600)

    for retry_count in range(2):
        with pytest.raises(PublishError):
            await running.handle([document(each) for each in "abcd"], "i", retry_count)
    await running.handle([document(each) for each in "abcd"], "i", 2)

    assert (topic.ids(), shelf.stored) == (sent, stored)


async def test_a_refused_event_can_hold_up_its_key() -> None:
    topic, shelf = FakeTopic(by_id={"b": "amqp:not-allowed"}), FakeShelf()

    running = relay(topic, shelf, OnPoison.BLOCK, duplicate_window_s=600)
    for retry_count in range(2):
        with pytest.raises(PublishError):
            await running.handle([document(each) for each in "abcd"], "i", retry_count)
    with pytest.raises(PublishError, match="RELAY_ON_POISON"):
        await running.handle([document(each) for each in "abcd"], "i", 2)

    assert (topic.ids(), shelf.stored) == (["a"], [])


async def test_old_events_are_not_sent_while_the_leases_cannot_be_read() -> None:
    class Unreadable(NeverCheckpointed):
        async def settled(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
            raise LeaseError("no")

    topic = FakeTopic()
    running = Relay(Unreadable(), topic.publisher(), FakeShelf(), duplicate_window_s=600)

    await running.handle([document("young")], "i")
    with pytest.raises(LeaseError):
        await running.handle([document("old", _ts=1)], "i")
    assert topic.ids() == ["young"]


async def test_closing_closes_the_links_and_the_quarantine() -> None:
    topic, shelf = FakeTopic(), FakeShelf()
    running = relay(topic, shelf)
    await running.handle([document("a")], "i")

    await running.close()

    assert shelf.closed
    assert [link.closed for link in topic.links] == [True]


async def test_each_invocation_is_one_log_record_with_what_came_and_what_was_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "relay"):
        await relay(FakeTopic()).handle([document("a"), document("b"), document("c", type="contact")], "i7")

    (line,) = [record for record in caplog.records if getattr(record, "action", None) == "relay_batch"]
    fields = vars(line)
    assert (fields["invocation_id"], fields["received"], fields["ignored"], fields["published"]) == ("i7", 3, 1, 2)
