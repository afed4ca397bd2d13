from __future__ import annotations

from relay.evidence import AcceptedLedger


def test_what_was_accepted_is_known_by_partition_key_and_id() -> None:
    ledger = AcceptedLedger()

    ledger.add("a", "1")

    assert ledger.holds("a", "1")
    assert not ledger.holds("a", "2")
    assert not ledger.holds("b", "1")


def test_the_oldest_is_forgotten_beyond_the_capacity() -> None:
    ledger = AcceptedLedger(capacity=2)

    for identifier in ("1", "2", "1", "3"):
        ledger.add("a", identifier)

    assert len(ledger) == 2
    assert [ledger.holds("a", identifier) for identifier in ("1", "2", "3")] == [True, False, True]


def test_by_default_at_least_a_hundred_thousand_events_are_known() -> None:
    ledger = AcceptedLedger()

    for number in range(100_002):
        ledger.add("a", str(number))

    assert all(ledger.holds("a", str(number)) for number in range(2, 100_002))
    assert len(ledger) <= 200_000
