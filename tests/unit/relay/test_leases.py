"""What a continuation in a lease says of an LSN."""

from __future__ import annotations

import pytest

from relay.leases import LeasePosition


def lease(continuation: str | None) -> LeasePosition:
    return LeasePosition("127.0.0.1_db_coll..0", "", "FF", None, continuation)


@pytest.mark.parametrize(
    ("continuation", "lsn", "passed"),
    [
        ('"7"', 6, True),
        ('"7"', 7, True),
        ('"7"', 8, False),
        ("7", 7, True),
        (None, 1, False),
        ('"0"', 1, False),
        # More than an LSN: it may stand within the transaction of that LSN.
        ('"7|2"', 6, True),
        ('"7|2"', 7, None),
        ('"7|2"', 8, False),
        ("[]", 1, None),
        ("", 1, None),
    ],
)
def test_an_lsn_is_passed_once_a_continuation_has_reached_it(
    continuation: str | None, lsn: int, passed: bool | None
) -> None:
    assert lease(continuation).passed(lsn) is passed


@pytest.mark.parametrize(("continuation", "lsn"), [('"7"', 7), ("7", 7), (None, 0), ('"7|2"', 7), ("[]", None)])
def test_the_position_of_a_lease_is_an_lsn(continuation: str | None, lsn: int | None) -> None:
    assert lease(continuation).lsn == lsn


def test_an_id_is_a_prefix_and_a_token() -> None:
    found = lease(None)

    assert (found.prefix, found.token) == ("127.0.0.1_db_coll", "0")


def test_a_range_holds_its_beginning_and_not_its_end() -> None:
    found = LeasePosition("a..0", "20", "40", None, None)

    assert [found.covers(key) for key in ("1F", "20", "3FFF", "40")] == [False, True, True, False]
