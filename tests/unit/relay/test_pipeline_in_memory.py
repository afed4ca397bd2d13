"""The whole way of a batch, on a source, a publisher and a quarantine in memory: no Azure package is needed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from relay.config.settings import ATTEMPT_MARGIN_S, OnPoison
from relay.core.documents import StoredDocument
from relay.core.errors import AccountingError, ConfigurationError, PublishError, QuarantineError, SourceError
from relay.core.events import Event, Rejected
from relay.core.holds import KEPT_S
from relay.core.pipeline import Relay
from relay.core.ports import Quarantine
from relay.core.results import KeyOutcome
from tests.support import virtual_time
from tests.support.commits import commit_time
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine, InMemorySource
from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[3]

WITHOUT_AZURE = """
import asyncio, sys

class NoAzure:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "azure":
            raise ImportError(f"{name} is not for the core")

sys.meta_path.insert(0, NoAzure())

import relay.core.events, relay.core.ports, relay.core.results
from relay.core.pipeline import Relay
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine, InMemorySource

relay = Relay(InMemorySource(), InMemoryPublisher(), InMemoryQuarantine(), duplicate_window_s=600)
batch = [{"id": "e1", "partitionKey": "k", "type": "domainEvent", "data": {"action": "A"}}]
print(asyncio.run(relay.handle(batch, "i1")).published)
"""


class Running:
    """A relay with everything around it."""

    def __init__(self, on_poison: OnPoison = OnPoison.SKIP) -> None:
        self.source = InMemorySource()
        self.publisher = InMemoryPublisher()
        self.quarantine = InMemoryQuarantine()
        self._on_poison = on_poison
        self.restart()

    def restart(self) -> None:
        """Go on in another process, which knows of nothing that this one has seen."""
        refused = self.publisher.refused
        self.publisher = InMemoryPublisher(self.publisher.accepted)
        self.publisher.refused = refused
        self.relay = self.relay_with(self.quarantine)

    def relay_with(self, quarantine: Quarantine) -> Relay[Sequence[StoredDocument]]:
        return Relay(self.source, self.publisher, quarantine, duplicate_window_s=600, on_poison=self._on_poison)

    def stored(self) -> list[tuple[str, str]]:
        return [(item.id, str(item.reason)) for item in self.quarantine.records]


def document(identifier: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    made = {"id": identifier, "partitionKey": key, "type": "domainEvent", "committedAt": commit_time()}
    return made | {"data": {"action": "A"}} | changes


def test_the_core_runs_without_any_azure_package() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_AZURE], cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_S
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


@pytest.mark.parametrize("bad", [1, 3, 40])
async def test_what_is_refused_for_its_own_content_among_sound_events_is_set_aside_at_the_third_attempt(
    bad: int,
) -> None:
    running = Running()
    running.publisher.refused = {f"bad{number}": "amqp:not-allowed" for number in range(bad)}
    batch = [document(f"bad{number}", f"b{number}") for number in range(bad)]
    batch += [document(f"e{number}", f"k{number}") for number in range(100)]

    for retry_count in range(2):
        with pytest.raises(PublishError):
            await running.relay.handle(batch, "i1", retry_count)
    outcome = await running.relay.handle(batch, "i1", 2)

    assert running.stored() == [(f"bad{number}", "message-refused") for number in range(bad)]
    assert (outcome.already_published, outcome.quarantined.total()) == (100, bad)


async def test_what_an_operator_has_set_aside_is_not_counted_among_the_keys_refused_alike() -> None:
    running = Running()
    running.publisher.refused = {f"bad{number}": "amqp:not-allowed" for number in range(3)}
    batch = [document(name, name) for name in ("bad0", "bad1", "bad2", "sound1", "sound2")]
    for retry_count in range(5):
        with pytest.raises(PublishError, match="python -m relay quarantine add bad0 bad0"):
            await running.relay.handle(batch, "i1", retry_count)
    running.quarantine.ordered = {("bad0", "bad0")}

    with suppress(PublishError):
        await running.relay.handle(batch, "i1", 5)
    await running.relay.handle(batch, "i1", 6)

    assert sorted(running.stored()) == [
        ("bad0", "set-aside"),
        ("bad1", "message-refused"),
        ("bad2", "message-refused"),
    ]


@pytest.mark.parametrize("keys", [1, 2, 3, 100])
@pytest.mark.parametrize("sound_before", [0, 1, 100])
async def test_a_topic_that_refuses_everything_makes_nothing_poison(keys: int, sound_before: int) -> None:
    running = Running()
    before = [document(f"s{number}", f"s{number}") for number in range(sound_before)]
    await running.relay.handle(before, "i0")
    batch = [document(f"e{number}", f"k{number % keys}") for number in range(100)]
    running.publisher.refuses_everything = "amqp:not-allowed"

    for retry_count in range(40):
        with pytest.raises(PublishError):
            await running.relay.handle(batch, "i1", retry_count)
    running.publisher.refuses_everything = None
    await running.relay.handle(batch, "i1", 40)

    assert running.stored() == []
    assert sum(map(len, running.publisher.accepted.values())) == 100 + sound_before


async def test_an_event_that_is_refused_alone_in_a_process_that_had_nothing_accepted_blocks_and_is_named() -> None:
    running = Running()
    running.publisher.refused = {"e1": "amqp:not-allowed"}

    for retry_count in range(20):
        with pytest.raises(PublishError, match="python -m relay quarantine add k e1"):
            await running.relay.handle([document("e1")], "i1", retry_count)

    assert running.stored() == []


async def test_what_is_quarantined_is_not_delivered_too_while_another_key_fails() -> None:
    running = Running()
    running.publisher.refused = {"x": "amqp:not-allowed", "o": "amqp:not-allowed"}
    batch = [document("x"), document("x2"), document("s", "sound")]
    for retry_count in range(2):
        with pytest.raises(PublishError):
            await running.relay.handle([*batch], "i1", retry_count)
    with pytest.raises(PublishError, match="'other'"):
        await running.relay.handle([*batch, document("o", "other")], "i1", 2)
    assert running.stored() == [("x", "message-refused")]
    running.publisher.refused = {}

    outcome = await running.relay.handle([*batch, document("o", "other")], "i1", 3)

    assert running.publisher.accepted == {"k": ["x2"], "sound": ["s"], "other": ["o"]}
    assert outcome.superseded == 1


class Unanswered(InMemoryQuarantine):
    """Cannot be reached from its first write on, until it is mended.

    Attributes:
        written: Whether that write was carried out all the same.
    """

    def __init__(self, *, written: bool) -> None:
        super().__init__()
        self.written = written
        self._mended = False

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, **more: Any) -> None:
        if self.written or self._mended:
            await super().store(rejected, invocation_id, **more)
        if not self._mended:
            self.broken = True
            raise QuarantineError("no answer")

    def mend(self) -> None:
        self.broken, self._mended = False, True


@pytest.mark.parametrize("written", [True, False])
async def test_what_may_be_quarantined_is_not_delivered_whatever_the_quarantine_answers(written: bool) -> None:
    running = Running()
    running.quarantine = quarantine = Unanswered(written=written)
    running.restart()
    running.publisher.refused = {"x": "amqp:not-allowed"}
    quarantine.ordered = {("k", "o")}
    batch = [document("x"), document("x2"), document("s", "sound")]
    ordered, later = document("o"), document("later")
    for retry_count in range(2):
        with pytest.raises(PublishError):
            await running.relay.handle(batch, "i1", retry_count)
    with pytest.raises(QuarantineError):
        await running.relay.handle([*batch, ordered], "i1", 2)
    running.publisher.refused = {}

    # The sound events continue while the quarantine cannot be reached.
    with pytest.raises(QuarantineError):
        await running.relay.handle([*batch, ordered, later], "i1", 3)
    quarantine.mend()
    await running.relay.handle([*batch, ordered, later], "i1", 4)

    assert running.publisher.accepted == {"sound": ["s"], "k": ["x2", "later"]}
    assert running.stored() == [("x", "message-refused"), ("o", "set-aside")]


async def test_a_record_of_which_no_answer_came_is_not_stored_again_once_it_is_discarded() -> None:
    running = Running()
    running.quarantine = quarantine = Unanswered(written=True)
    running.restart()
    quarantine.ordered = {("k", "x")}
    with pytest.raises(QuarantineError):
        await running.relay.handle([document("x")], "i1", 1)
    quarantine.mend()
    quarantine.records.clear()

    outcome = await running.relay.handle([document("x")], "i1", 2)

    assert (outcome.superseded, running.stored()) == (1, [])


class Slow(InMemoryQuarantine):
    """Stores a limited number of documents in each attempt, and fails on more.

    Attributes:
        left: Number of documents that it still stores in this attempt.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, **more: Any) -> None:
        self.left -= len(rejected)
        if self.left < 0:
            raise QuarantineError("too slow")
        await super().store(rejected, invocation_id, **more)


@pytest.mark.parametrize("keys", [1, 50])
@pytest.mark.parametrize("policy", [OnPoison.SKIP, OnPoison.PARK])
async def test_a_store_that_takes_less_in_an_attempt_than_is_set_aside_is_through_after_some(
    policy: OnPoison, keys: int
) -> None:
    running = Running(policy)
    running.quarantine = quarantine = Slow()
    running.restart()
    # With 'park', what follows the first event of a key is set aside for its sake.
    sound = {"data": {"action": "A"}} if policy is OnPoison.PARK else {"data": 7}
    batch = [document(f"e{number}", f"k{number % keys}", data=7) for number in range(keys)]
    batch += [document(f"e{number}", f"k{number % keys}", **sound) for number in range(keys, 600)]

    attempts = 0
    while quarantine.left <= 0 and attempts < 10:
        quarantine.left = 250
        with suppress(QuarantineError):
            await running.relay.handle(batch, "i1", attempts)
        attempts += 1

    of_key = {key: [each["id"] for each in batch if each["partitionKey"] == key] for key in ("k0", f"k{keys - 1}")}
    assert attempts <= 4
    assert len(quarantine.records) == 600
    for key, ids in of_key.items():
        assert [item.id for item in quarantine.records if item.partition_key == key] == ids


async def test_what_was_parked_and_released_is_not_parked_again_while_another_key_fails() -> None:
    running = Running(OnPoison.PARK)
    running.publisher.refused = {"z": "amqp:not-allowed"}
    batch = [document("x", data=7), document("a"), document("b"), document("z", "other")]
    with pytest.raises(PublishError):
        await running.relay.handle(batch, "i1")
    assert [item.id for item in running.quarantine.records] == ["x", "a", "b"]
    # A release publishes them, and an operator discards the first.
    running.quarantine.records.clear()
    running.quarantine.parked.clear()
    running.publisher.accepted["k"] = ["a", "b"]
    running.publisher.refused = {}

    outcome = await running.relay.handle([*batch, document("c")], "i1", 1)

    assert (outcome.superseded, outcome.published, running.stored()) == (3, 2, [])
    assert running.publisher.accepted == {"k": ["a", "b", "c"], "other": ["z"]}


async def test_each_version_of_an_event_that_is_refused_is_set_aside_once() -> None:
    running = Running()
    running.publisher.refused = {"x": "amqp:not-allowed"}
    batch = [document("x", _lsn=1), document("x", _lsn=2), document("s", "sound")]

    for retry_count in range(8):
        with suppress(PublishError):
            await running.relay.handle(batch, "i1", retry_count)

    assert running.stored() == [("x", "message-refused")] * 2
    assert (await running.relay.handle(batch, "i1", 8)).superseded == 2


async def test_what_is_quarantined_is_not_delivered_by_the_next_process_either() -> None:
    running = Running(OnPoison.BLOCK)
    batch = [document("x", _lsn=1), document("x2", _lsn=2), document("o", "other", data=7, _lsn=3)]
    running.quarantine.ordered = {("k", "x")}
    with pytest.raises(PublishError):
        await running.relay.handle(batch, "i1")
    assert running.stored() == [("x", "set-aside")]

    running.restart()
    with pytest.raises(PublishError):
        await running.relay.handle(batch, "i1")

    assert running.publisher.accepted == {"k": ["x2"]}


@pytest.mark.parametrize("policy", list(OnPoison))
async def test_what_an_operator_makes_of_a_record_holds_while_its_page_is_repeated(policy: OnPoison) -> None:
    running = Running(policy)
    running.quarantine.ordered = {("k", "x")}
    running.publisher.refused = {"o": "amqp:not-allowed"}
    batch = [document("x", _lsn=1), document("o", "other", _lsn=2)]
    with pytest.raises(PublishError):
        await running.relay.handle(batch, "i1", 1)
    assert running.stored() == [("x", "set-aside")]
    running.quarantine.records.clear()  # discarded
    running.quarantine.parked.clear()

    for running_again in (False, True):
        if running_again:
            running.restart()
        with pytest.raises(PublishError):
            await running.relay.handle(batch, "i1", 2)

    assert running.stored() == []
    assert running.publisher.accepted == {}


@pytest.mark.parametrize("policy", list(OnPoison))
async def test_what_the_checkpoint_has_passed_is_not_set_aside_again(policy: OnPoison) -> None:
    running = Running(policy)
    running.source.passed = {("k", "x"), ("k", "bad"), ("k", "behind")}
    running.quarantine.ordered = {("k", "x")}

    outcome = await running.relay.handle([document("x"), document("bad", data=7), document("behind")], "i1", 1)

    assert outcome.superseded == 3
    assert (running.stored(), running.quarantine.parked) == ([], {})


async def test_what_the_checkpoint_passes_while_it_is_refused_is_not_set_aside() -> None:
    running = Running(OnPoison.PARK)
    running.publisher.refused = {"x": "amqp:not-allowed"}
    batch = [document("x"), document("x2"), *(document(f"s{number}", f"s{number}") for number in range(3))]
    for retry_count in range(2):
        with pytest.raises(PublishError):
            await running.relay.handle(batch, "i1", retry_count)
    running.source.passed = {("k", "x"), ("k", "x2")}

    outcome = await running.relay.handle(batch, "i1", 2)

    assert (outcome.superseded, running.stored(), running.quarantine.parked) == (2, [], {})


async def test_after_a_crash_between_parking_and_checkpoint_only_the_poison_and_what_follows_is_parked() -> None:
    running = Running(OnPoison.PARK)
    batch = [
        document("e1", _lsn=1),
        document("e2", _lsn=2),
        document("bad", data=7, _lsn=3),
        document("e4", _lsn=4),
    ]
    await running.relay.handle(batch, "i1")
    running.restart()

    await running.relay.handle(batch, "i2")

    assert running.stored() == [("bad", "data-not-object"), ("e4", "key-parked")]
    assert running.publisher.accepted == {"k": ["e1", "e2"]}


@pytest.mark.parametrize(("policy", "reads"), [(OnPoison.SKIP, 0), (OnPoison.BLOCK, 0), (OnPoison.PARK, 5)])
async def test_orders_are_read_by_repeated_attempts_or_always_with_park(policy: OnPoison, reads: int) -> None:
    running = Running(policy)
    for number in range(5):
        await running.relay.handle([document(f"e{number}")], "i1")
    assert running.quarantine.reads == reads

    await running.relay.handle([document("e9")], "i1", 1)
    assert running.quarantine.reads == reads + 1


@pytest.mark.parametrize("policy", [OnPoison.SKIP, OnPoison.BLOCK])
async def test_what_another_process_has_set_aside_is_not_delivered_by_one_that_takes_its_lease(
    policy: OnPoison,
) -> None:
    first, second = Running(policy), Running(policy)
    second.quarantine, second.publisher = first.quarantine, first.publisher
    second.restart()
    await second.relay.handle([document("y", "elsewhere")], "i1")
    committed = int(time.time()) - 2
    batch = [document("x", committedAt=committed), document("x2", committedAt=committed)]
    first.quarantine.ordered = {("k", "x")}
    await first.relay.handle(batch, "i2", 5)

    outcome = await second.relay.handle(batch, "i3")

    assert second.publisher.accepted == {"elsewhere": ["y"], "k": ["x2"]}
    assert outcome.superseded == 1


@pytest.mark.parametrize("policy", list(OnPoison))
async def test_what_was_invalid_and_has_been_discarded_is_not_quarantined_again_by_the_next_owner_of_its_lease(
    policy: OnPoison,
) -> None:
    first, second = Running(policy), Running(policy)
    second.quarantine = first.quarantine
    second.restart()
    await second.relay.handle([document("y", "elsewhere")], "i1")
    batch = [document("x", data=7)]
    first.quarantine.ordered = {("k", "x")}
    await first.relay.handle(batch, "i2", 1)
    assert first.stored() == [("x", "data-not-object")]
    first.quarantine.records.clear()
    first.quarantine.parked.clear()

    outcome = await second.relay.handle(batch, "i3")

    assert (outcome.superseded, first.stored(), first.quarantine.parked) == (1, [], {})


async def test_the_order_of_an_event_that_the_checkpoint_has_passed_is_removed_by_whoever_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running()
    running.quarantine.ordered = {("k", "x"), ("k", "never")}
    await running.relay.handle([document("x", _lsn=1)], "i1", 1)
    running.restart()
    running.source.passed_lsn = 1

    await running.relay.handle([document("y", _lsn=2)], "i2", 1)
    later = time.time() + KEPT_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    await running.relay.handle([document("y", _lsn=2)], "i2", 2)

    assert (running.quarantine.held, running.quarantine.ordered) == ({}, {("k", "never")})


async def test_an_event_whose_order_is_removed_is_not_published_by_the_process_that_removes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running()
    running.quarantine.ordered = {("k", "x")}
    page = [document("x", _lsn=1), document("x2", _lsn=2)]
    await running.relay.handle(page, "i1", 1)
    # Another process still has the page, and does not know that the lease is not its own.
    running.restart()
    running.source.passed_lsn = 2

    first = await running.relay.handle(page, "i2", 1)
    later = time.time() + KEPT_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    second = await running.relay.handle(page, "i2", 2)

    assert running.quarantine.held == {}
    assert (first.superseded, second.superseded) == (2, 2)
    assert running.publisher.accepted == {"k": ["x2"]}


async def test_two_events_that_block_a_page_are_set_aside_one_after_the_other() -> None:
    running = Running(OnPoison.BLOCK)
    batch = [document("a", "a", data=7), document("b", "b", data=7), document("c", "c")]
    with pytest.raises(PublishError, match="'a'"):
        await running.relay.handle(batch, "i1")
    running.quarantine.ordered = {("a", "a")}
    with pytest.raises(PublishError, match="'b'"):
        await running.relay.handle(batch, "i1", 1)
    running.quarantine.ordered |= {("b", "b")}

    outcome = await running.relay.handle(batch, "i1", 2)

    assert sorted(running.stored()) == [("a", "data-not-object"), ("b", "data-not-object")]
    assert outcome.failed == []


async def test_with_skip_a_quarantine_that_cannot_be_read_delays_nothing_that_nobody_has_attempted() -> None:
    running = Running()
    running.quarantine.broken = True

    with pytest.raises(QuarantineError):
        await running.relay.handle([document("e1"), document("bad", "other", data=7)], "i1")
    await running.relay.handle([document("e2")], "i2")

    assert running.publisher.accepted == {"k": ["e1", "e2"]}


@pytest.mark.parametrize("retry_count", [0, 1], ids=["elsewhere", "here"])
@pytest.mark.parametrize("policy", OnPoison)
async def test_a_page_that_may_have_been_attempted_waits_for_the_quarantine(
    policy: OnPoison, retry_count: int
) -> None:
    running = Running(policy)
    await running.relay.handle([document("e1")], "i1")
    running.quarantine.ordered = {("k", "e2")}
    age_s = 60 if retry_count == 0 else 0
    page = [document(name, committedAt=int(time.time()) - age_s) for name in ("e2", "e3")]

    # Also while an earlier failure is remembered.
    running.quarantine.broken = True
    for _ in range(2):
        with pytest.raises(QuarantineError):
            await running.relay.handle(page, "i2", retry_count)
    running.quarantine.broken = False
    await running.relay.handle(page, "i2", retry_count + 1)

    held_back = [("e3", "key-parked")] if policy is OnPoison.PARK else []
    assert running.publisher.accepted == {"k": ["e1"] if held_back else ["e1", "e3"]}
    assert running.stored() == [("e2", "set-aside"), *held_back]


async def test_with_park_nothing_is_published_while_the_quarantine_cannot_be_read() -> None:
    running = Running(OnPoison.PARK)
    await running.relay.handle([document("e1")], "i1")
    running.quarantine.broken = True

    with pytest.raises(QuarantineError):
        await running.relay.handle([document("e2")], "i2")
    assert running.publisher.accepted == {"k": ["e1"]}


@pytest.mark.parametrize(
    ("silent", "said", "accepted"),
    [
        ("holds", "took longer", {}),
        ("store", "quarantining what is set aside took longer", {"k": ["e1"]}),
        ("passed_positions", "took longer", {}),
    ],
)
def test_an_attempt_fails_within_its_margin_where_a_store_never_answers(
    silent: str, said: str, accepted: dict[str, list[str]]
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.sleep(1_000_000)

    running = Running(OnPoison.PARK)
    passed_positions = running.source.passed_positions
    # What is compared first counts towards the attempt. What is set aside is compared after it: here, for nearly
    # as long as a comparison may take.
    seconds_to_compare = iter((0, 24))

    async def compare(items: Sequence[Event | Rejected]) -> frozenset[int]:
        await asyncio.sleep(next(seconds_to_compare))
        return await passed_positions(items)

    running.source.passed_positions = compare  # type: ignore[method-assign]
    setattr(running.source if silent == "passed_positions" else running.quarantine, silent, never)
    running.restart()

    async def seconds() -> float:
        began = time.monotonic()
        with pytest.raises((QuarantineError, SourceError), match=said):
            await running.relay.handle([document("e1"), document("bad", "other", data=7)], "i1")
        return time.monotonic() - began

    assert virtual_time.run(seconds()) <= ATTEMPT_MARGIN_S
    assert running.publisher.accepted == accepted


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
    assert list(running.quarantine.held) == [("k", "e1")]


async def test_old_events_that_the_checkpoint_has_passed_are_not_sent() -> None:
    running = Running()
    running.source.passed = {("k", "e1")}

    outcome = await running.relay.handle([document("e1", committedAt=1), document("e2", committedAt=1)], "i1")

    assert (outcome.superseded, outcome.published) == (1, 1)
    assert running.publisher.accepted == {"k": ["e2"]}


async def test_a_key_that_is_parked_while_its_old_events_are_compared_stays_parked() -> None:
    running = Running(OnPoison.PARK)
    another = Running(OnPoison.PARK)
    another.quarantine = running.quarantine
    another.restart()
    batch = [document("bad", data=7, committedAt=1), document("e2", committedAt=1)]

    async def passed_positions(items: Sequence[Event | Rejected], /) -> frozenset[int]:
        await another.relay.handle(batch[:1], "i0")
        return frozenset(item.position for item in items if item.name == ("k", "bad"))

    running.source.passed_positions = passed_positions  # type: ignore[method-assign]
    running.restart()
    outcome = await running.relay.handle(batch, "i1")

    assert (outcome.superseded, running.publisher.accepted) == (1, {})
    assert running.stored() == [("bad", "data-not-object"), ("e2", "key-parked")]


async def test_what_cannot_be_compared_with_the_checkpoint_is_not_set_aside() -> None:
    running = Running()
    comparisons = iter([frozenset[int]()])

    async def passed_positions(_: Sequence[Event | Rejected], /) -> frozenset[int]:
        if (passed := next(comparisons, None)) is None:
            raise SourceError("the leases cannot be read")
        return passed

    running.source.passed_positions = passed_positions  # type: ignore[method-assign]
    running.restart()

    with pytest.raises(
        QuarantineError, match=r"1 document\(s\) must be quarantined, but the leases cannot be read"
    ):
        await running.relay.handle([document("bad", data=7)], "i1")
    assert running.stored() == []


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
