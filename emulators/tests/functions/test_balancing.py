"""The share of the leases that a host takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from outbox_emulators.functions.balancing import leases_to_take
from outbox_emulators.functions.feed import PartitionRange
from outbox_emulators.functions.leases import Lease

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def _leases(*owners: str | None, age_s: float = 1) -> list[Lease]:
    written = NOW - timedelta(seconds=age_s)
    return [
        Lease(f"p..{number}", PartitionRange(str(number), "", "FF"), owner, None, written, "e", {})
        for number, owner in enumerate(owners)
    ]


def _taken(leases: list[Lease], host: str = "me") -> list[str]:
    return [lease.token for lease in leases_to_take(leases, host=host, now=NOW, expiration_s=60)]


def test_the_only_host_takes_everything() -> None:
    assert _taken(_leases(None, None, None, None)) == ["0", "1", "2", "3"]


def test_a_second_host_takes_its_share_of_what_is_free() -> None:
    assert _taken(_leases("other", "other", None, None)) == ["2", "3"]
    assert _taken(_leases("other", None, None, None)) == ["1", "2"]


def test_where_nothing_is_free_one_lease_is_stolen_at_a_time() -> None:
    assert _taken(_leases("other", "other", "other", "other")) == ["0"]
    assert _taken(_leases("me", "other", "other", "other")) == ["1"]


def test_an_equal_share_is_enough() -> None:
    assert _taken(_leases("me", "me", "other", "other")) == []


def test_leases_are_stolen_from_the_host_with_the_most() -> None:
    assert _taken(_leases("a", "b", "b", "b", "a", "b")) == ["1"]


def test_a_remainder_is_not_passed_back_and_forth() -> None:
    assert _taken(_leases("other", "other", "me")) == []
    assert _taken(_leases("me", "me", "other"), host="other") == []


def test_expired_leases_are_free() -> None:
    assert _taken(_leases("dead", "dead", age_s=61)) == ["0", "1"]
    assert _taken(_leases("alive", "alive", age_s=59)) == ["0"]


def test_a_host_with_its_share_takes_nothing() -> None:
    assert _taken([]) == []
    assert _taken(_leases("other")) == []


@given(st.integers(1, 12), st.integers(1, 5))
def test_hosts_taking_turns_come_to_rest_with_fair_shares(partitions: int, hosts: int) -> None:
    owners: list[str | None] = [None] * partitions
    names = [f"host-{number}" for number in range(hosts)]
    for _ in range(partitions * hosts + 2):
        for name in names:
            for token in _taken(_leases(*owners), host=name):
                owners[int(token)] = name
    counts = [owners.count(name) for name in names]
    assert sum(counts) == partitions
    assert max(counts) - min(counts) <= 1 or max(counts) <= -(-partitions // hosts)
    assert not any(_taken(_leases(*owners), host=name) for name in names)
