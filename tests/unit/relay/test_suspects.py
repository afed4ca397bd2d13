"""Transfers that may have ended a link: which one is named, and in which groups they are sent again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from relay.core.errors import RetryableError
from relay.servicebus import link_suspects as module
from relay.servicebus import messages
from relay.servicebus.link_suspects import LateAcceptances, SuspectBatches, Suspects
from relay.servicebus.transfers import Transfer
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import event

WAIT_S = float(WATCHDOG_S)


def transfer(key: str, *ids: str) -> Transfer:
    return Transfer([event(each, key) for each in ids or (key,)], messages.plain, b"", 0)


def test_a_transfer_is_the_cause_once_two_links_have_ended_with_nothing_else_and_another_was_accepted() -> None:
    suspects = Suspects()

    assert not suspects.ended(transfer("a"), 2)
    assert not suspects.ended(transfer("a"), 1)
    assert not suspects.ended(transfer("a"), 1)
    suspects.accepted += 1
    assert not suspects.ended(transfer("b"), 1)
    assert suspects.ended(transfer("a"), 1)


def test_only_what_was_accepted_after_the_first_end_counts() -> None:
    suspects = Suspects()
    suspects.accepted += 1

    assert [suspects.ended(transfer("a"), 1) for _ in range(3)] == [False] * 3


def test_ends_of_a_busy_service_and_those_with_others_in_flight_name_nobody() -> None:
    suspects = Suspects()
    suspects.ended(transfer("a"), 1)
    suspects.accepted += 1

    assert not suspects.ended(transfer("a"), 1, busy=True)
    assert not suspects.ended(transfer("a"), 2)
    assert suspects.ended(transfer("a"), 1)


def test_a_part_of_a_suspect_is_sent_by_itself_and_counted_anew() -> None:
    suspects = Suspects()
    suspects.ended(transfer("a", "1", "2", "3", "4"), 8)
    suspects.ended(transfer("a", "1", "2", "3", "4"), 1)
    suspects.accepted += 1

    assert suspects.among(transfer("a", "1", "2", "3", "4")) == 1
    assert suspects.among(transfer("a", "1", "2")) == 1
    assert not suspects.ended(transfer("a", "1", "2"), 1)
    assert suspects.ended(transfer("a", "1", "2"), 1)


def test_what_was_answered_is_no_suspect_and_the_rest_of_its_key_still_is() -> None:
    suspects = Suspects()
    suspects.ended(transfer("a", "1", "2"), 8)

    suspects.clear(transfer("a", "1"))

    assert (suspects.among(transfer("a", "1")), suspects.among(transfer("a", "2"))) == (0, 1)
    suspects.clear(transfer("a", "2"))
    assert not suspects


def test_other_keys_and_other_events_of_a_key_are_no_suspects() -> None:
    suspects = Suspects()
    suspects.ended(transfer("a", "1"), 8)

    assert [suspects.among(transfer("a", "2")), suspects.among(transfer("b", "1"))] == [0, 0]
    assert suspects.among(transfer("a", "1")) == 8
    # Another event of the key, which takes the place of the one before.
    suspects.ended(transfer("a", "2"), 4)
    assert [suspects.among(transfer("a", each)) for each in ("1", "2")] == [0, 4]


def test_what_ends_a_link_with_a_part_of_a_suspect_is_suspected_too() -> None:
    suspects = Suspects()
    suspects.ended(transfer("a", "1", "2"), 8)

    suspects.ended(transfer("a", "2", "3"), 4)

    assert [suspects.among(transfer("a", each)) for each in ("1", "2", "3", "4")] == [1, 1, 1, 0]


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEYS_AT_MOST", 2)
    suspects = Suspects()

    for key in ("a", "b", "a", "c"):
        suspects.ended(transfer(key), 8)

    assert [suspects.among(transfer(key)) for key in ("a", "b", "c")] == [0, 8, 8]


class Suspected:
    """Transfers that wait for their groups, and leave when the test says."""

    def __init__(self) -> None:
        self.groups = SuspectBatches()
        self.admitted: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def wait(self, among: int, *names: str, ends_s: float = WAIT_S) -> None:
        ends = asyncio.get_running_loop().time() + ends_s
        for name in names:
            self._leave[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._turn(name, among, ends))

    async def _turn(self, name: str, among: int, ends: float) -> None:
        async with self.groups.turn(among, ends):
            self.admitted.append(name)
            await self._leave[name].wait()

    async def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
        await asyncio.wait([self.tasks[name] for name in names])

    async def settled(self) -> list[str]:
        """Those admitted since the last call."""
        for _ in range(5):
            await asyncio.sleep(0)
        admitted, self.admitted = self.admitted, []
        return admitted


async def test_a_group_is_half_as_large_as_the_one_that_ended_and_the_less_suspicious_go_first() -> None:
    suspected = Suspected()
    suspected.wait(8, *"abcdefgh")
    assert await suspected.settled() == list("abcd")
    await suspected.leave(*"abc")
    assert await suspected.settled() == []

    # The half of them that was in flight when the next link ended.
    suspected.wait(4, *"ijkl")
    await suspected.leave("d")

    assert await suspected.settled() == list("efgh")
    await suspected.leave(*"efgh")
    assert await suspected.settled() == list("ij")
    await suspected.leave(*"ij")
    assert await suspected.settled() == list("kl")
    await suspected.leave(*"kl")
    suspected.wait(1, *"mn")
    assert await suspected.settled() == ["m"]
    await suspected.leave("m")
    assert await suspected.settled() == ["n"]
    await suspected.leave("n")


async def test_one_that_is_not_admitted_in_time_or_is_cancelled_holds_up_no_other() -> None:
    suspected = Suspected()
    suspected.wait(1, "a")
    assert await suspected.settled() == ["a"]
    suspected.wait(1, "late", ends_s=0.01)
    suspected.wait(1, "cancelled", "b")
    await suspected.settled()

    suspected.tasks["cancelled"].cancel()
    with pytest.raises(RetryableError, match="the next attempt goes on"):
        await suspected.tasks["late"]
    await suspected.leave("a")

    assert await suspected.settled() == ["b"]
    await suspected.leave("b")


async def test_one_that_is_cancelled_as_it_is_admitted_leaves_its_place() -> None:
    groups = SuspectBatches()
    ends = asyncio.get_running_loop().time() + WAIT_S
    async with AsyncExitStack() as held:
        await held.enter_async_context(groups.turn(1, ends))
        cancelled = asyncio.create_task(AsyncExitStack().enter_async_context(groups.turn(1, ends)))
        await asyncio.sleep(0)
    # The place is given in the next turn of the loop, and the task would take it in the one after.
    asyncio.get_running_loop().call_soon(cancelled.cancel)
    await asyncio.wait({cancelled})
    assert cancelled.cancelled()

    async with asyncio.timeout(WAIT_S), groups.turn(1, ends):
        pass


@pytest.mark.parametrize(("after_s", "is_named"), [(0.9, False), (1.0, False), (1.1, True)])
def test_a_late_acceptance_is_named_if_a_larger_limit_would_have_awaited_it(
    after_s: float, is_named: bool
) -> None:
    late = LateAcceptances()
    late.note(after_s)
    late.note(0.1)

    assert ("it accepted an earlier transfer after" in str(late.unanswered(1.0))) is is_named
