"""Which process reads which shard, decided by each from the claims that all see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_relay.changefeed import Claim
from relay.backends.sql.worker import Decision, Watch, decide


def claim(
    shard_id: int, owner: str | None = None, epoch: int = 1, renewals: int = 1, wanted: str | None = None
) -> Claim:
    return Claim(shard_id, bytes(16), owner, epoch, renewals, wanted)


def claims(*owners: str | None) -> list[Claim]:
    return [claim(number, owner) for number, owner in enumerate(owners)]


NOBODY: frozenset[int] = frozenset()


def test_the_first_process_takes_every_shard() -> None:
    assert decide(claims(None, None, None), "a", NOBODY) == Decision(take=claims(None, None, None))


def test_a_process_takes_no_more_than_its_share_rounded_up() -> None:
    decision = decide(claims("b", None, None, None, None), "a", NOBODY)

    assert [each.shard_id for each in decision.take] == [1, 2, 3]


def test_the_shards_of_a_dead_process_are_taken() -> None:
    decision = decide(claims("a", "b", "b"), "a", frozenset({1, 2}))

    assert [each.shard_id for each in decision.take] == [1, 2]


def test_a_process_without_a_shard_asks_the_one_that_has_most() -> None:
    decision = decide(claims("a", "b", "b", "b"), "c", NOBODY)

    assert decision.ask is not None
    assert decision.ask.owner == "b"
    assert not decision.take


def test_a_process_asks_for_one_shard_at_a_time() -> None:
    wanted = [replace(each, wanted_by="c" if each.shard_id == 1 else None) for each in claims("b", "b", "b", "b")]

    assert decide(wanted, "c", NOBODY) == Decision()


def test_nobody_asks_where_everybody_has_a_share() -> None:
    assert decide(claims("a", "b", "b"), "a", NOBODY) == Decision()


def test_a_process_that_has_more_than_its_share_gives_what_is_asked_for() -> None:
    held = claims("a", "a")
    held[1] = replace(held[1], wanted_by="b")

    assert decide(held, "a", NOBODY) == Decision(give=[(held[1], "b")])


def test_a_process_keeps_its_share_whoever_asks() -> None:
    alone = [replace(claim(0, "a"), wanted_by="c"), claim(1, "b")]
    assert decide(alone, "a", NOBODY).give == []

    both = [replace(each, wanted_by="c") for each in claims("a", "a", "b", "b")]
    assert [each.shard_id for each, _ in decide(both, "a", NOBODY).give] == [0]


def test_a_process_declines_what_it_keeps_so_that_an_asker_that_has_ended_counts_no_more() -> None:
    asked = [replace(claim(0, "a"), wanted_by="ended"), claim(1, "b")]

    declined = decide(asked, "a", frozenset({1})).decline

    assert declined == [asked[0]]
    assert decide([claim(0, "a"), asked[1]], "a", frozenset({1})).take == [asked[1]]


def test_what_is_given_is_not_declined() -> None:
    asked = [replace(each, wanted_by="c") for each in claims("a", "a", "b")]

    decision = decide(asked, "a", NOBODY)

    assert (decision.give, decision.decline) == ([(asked[0], "c")], [asked[1]])


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_rounds_of_decisions_end_in_equal_shares(shards: int, processes: int) -> None:
    names = [f"p{number}" for number in range(processes)]
    held = claims(*[None] * shards)
    for _ in range(4 * shards + 4):
        for name in names:
            decision = decide(held, name, NOBODY)
            for each in decision.take:
                held[each.shard_id] = replace(held[each.shard_id], owner=name, wanted_by=None)
            for each, successor in decision.give:
                held[each.shard_id] = replace(held[each.shard_id], owner=successor, wanted_by=None)
            for each in decision.decline:
                held[each.shard_id] = replace(held[each.shard_id], wanted_by=None)
            if decision.ask is not None:
                number = decision.ask.shard_id
                held[number] = replace(held[number], wanted_by=name)

    counts = sorted(sum(each.owner == name for each in held) for name in names)
    assert sum(counts) == shards
    assert counts[-1] - counts[0] <= 1
    assert all(decide(held, name, NOBODY) == Decision() for name in names)


def test_a_claim_is_dead_when_it_has_not_changed_for_its_time_on_the_watchers_clock() -> None:
    watch = Watch(10)

    assert watch.dead([claim(0, "b")], 100.0) == NOBODY
    assert watch.dead([claim(0, "b")], 109.9) == NOBODY
    assert watch.dead([claim(0, "b")], 110.0) == frozenset({0})


def test_a_renewal_is_a_sign_of_life_and_so_is_another_owner() -> None:
    watch = Watch(10)
    watch.dead([claim(0, "b"), claim(1, "b")], 100.0)

    assert watch.dead([claim(0, "b", renewals=2), claim(1, "c", epoch=2)], 110.0) == NOBODY
    assert watch.dead([claim(0, "b", renewals=2), claim(1, "c", epoch=2)], 119.0) == NOBODY


def test_a_claim_without_an_owner_is_free_and_not_dead() -> None:
    watch = Watch(10)
    watch.dead([claim(0)], 100.0)

    assert watch.dead([claim(0)], 200.0) == NOBODY
