"""The LSN in a lease's continuation."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.cosmos.aio import ContainerProxy

from relay.backends.cosmos.effective_keys import EffectiveKeys
from relay.backends.cosmos.leases import LeasePosition, Positions, read_positions


def lease(continuation: str | None) -> LeasePosition:
    return LeasePosition("127.0.0.1_db_coll..0", "", "FF", None, continuation)


@pytest.mark.parametrize(
    ("continuation", "done", "begun"),
    [
        ('"7"', 7, 7),
        ("7", 7, 7),
        (None, -1, -1),
        ('"0"', 0, 0),
        # More than an LSN: it may stand within the transaction of that LSN.
        ('"7|2"', 6, 7),
        ("[]", -1, math.inf),
        ("", -1, math.inf),
    ],
)
def test_a_lease_is_done_up_to_an_lsn_and_may_have_begun_the_next(
    continuation: str | None, done: int, begun: float
) -> None:
    assert lease(continuation).reached == (done, begun)
    assert lease(continuation).done == done


def test_a_document_is_passed_at_its_own_lsn_and_never_without_one() -> None:
    passed = [lease('"7"').has_passed({"_lsn": lsn}) for lsn in (6, 7, 8, "7", None)]

    assert passed == [True, True, False, False, False]
    assert not lease('"7"').has_passed({})


def test_an_id_ends_with_a_token() -> None:
    assert lease(None).token == "0"


def test_a_range_holds_its_beginning_and_not_its_end() -> None:
    found = LeasePosition("a..0", "20", "40", None, None)

    assert [found.covers(key) for key in ("1F", "20", "3FFF", "40")] == [False, True, True, False]


DOCUMENT = {
    "id": "127.0.0.1_db_coll..3",
    "Owner": "host",
    "ContinuationToken": '"7"',
    "FeedRange": {"Range": {"min": "20", "max": "40"}},
}


def test_a_lease_is_read_as_the_processor_writes_it() -> None:
    found = LeasePosition.from_document(DOCUMENT)

    assert found == LeasePosition("127.0.0.1_db_coll..3", "20", "40", "host", '"7"')


@pytest.mark.parametrize("feed_range", [None, "all", {}, {"Range": None}, {"Range": "20-40"}])
def test_a_lease_without_a_range_covers_no_key(feed_range: Any) -> None:
    found = LeasePosition.from_document(DOCUMENT | {"FeedRange": feed_range})

    assert found == LeasePosition("127.0.0.1_db_coll..3", "", "", "host", '"7"')
    assert not found.covers("")


class Monitored:
    """The outbox container, whose effective keys are the partition keys themselves; counts who asks for them."""

    def __init__(self) -> None:
        self.client_connection = SimpleNamespace(url_connection="https://127.0.0.1:443/")
        self.asked = 0

    async def read(self) -> dict[str, str]:
        return {"_rid": "coll"}

    async def feed_range_from_partition_key(self, key: str) -> dict[str, Any]:
        self.asked += 1
        return {"Range": {"min": key, "max": key}}


class Leases:
    """The lease container, with a query that only this module makes."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self._documents = documents

    async def query_items(self, query: str, *, parameters: list[dict[str, str]]) -> AsyncIterator[dict[str, Any]]:
        assert "CONTAINS(c.id, @container)" in query
        (parameter,) = parameters
        for document in self._documents:
            if parameter["value"] in document["id"]:
                yield document


def stored(identifier: str, lsn: int | str | None, minimum: str = "", maximum: str = "FF") -> dict[str, Any]:
    token = f'"{lsn}"' if isinstance(lsn, int) else lsn
    bounds = {"min": minimum, "max": maximum}
    return {"id": identifier, "Owner": None, "ContinuationToken": token, "FeedRange": {"Range": bounds}}


async def read(*documents: dict[str, Any], **options: Any) -> Positions:
    leases, monitored = cast(ContainerProxy, Leases(*documents)), cast(ContainerProxy, Monitored())
    return await read_positions(leases, monitored, **options)


async def test_the_lease_that_covers_a_key_says_whether_it_has_passed_an_lsn() -> None:
    positions = await read(
        stored("127.0.0.1_db_coll..1", 5, "20", "40"),
        stored("127.0.0.1_db_coll..0", 9, "", "20"),
    )

    assert [lease.token for lease in positions.leases] == ["0", "1"]
    assert [await positions.passed("1F", lsn) for lsn in (5, 6, 9, 10)] == [True, True, True, False]
    assert [await positions.passed("20", lsn) for lsn in (5, 6)] == [True, False]
    assert await positions.passed("50", 1) is None


def overlapping(prefix: str = "") -> list[dict[str, Any]]:
    """A lease of all keys, and three within it: behind it, without a position, and within a transaction."""
    return [
        stored(f"{prefix}127.0.0.1_db_coll..0", 9),
        stored(f"{prefix}127.0.0.1_db_coll..1", 5, "20", "40"),
        stored(f"{prefix}127.0.0.1_db_coll..2", "[]", "60", "80"),
        stored(f"{prefix}127.0.0.1_db_coll..3", '"9|1"', "50", "60"),
    ]


async def test_every_lease_of_the_trigger_has_to_have_passed_it() -> None:
    positions = await read(*overlapping())

    assert [await positions.passed("30", lsn) for lsn in (5, 6, 9, 10)] == [True, None, None, False]
    assert [await positions.passed("55", lsn) for lsn in (8, 9, 10)] == [True, None, False]
    assert [await positions.passed("70", lsn) for lsn in (5, 10)] == [None, None]
    assert [await positions.has_passed("30", lsn) for lsn in (5, 6, 9, 10)] == [True, False, False, False]
    assert [await positions.has_passed("55", lsn) for lsn in (8, 9)] == [True, False]
    assert [await positions.has_passed("70", lsn) for lsn in (5, 10)] == [False, False]


async def test_leases_of_several_triggers_count_together_where_the_relay_has_none() -> None:
    positions = await read(*overlapping("blue-")[:1], *overlapping("green-")[1:])

    assert [await positions.passed("30", lsn) for lsn in (5, 6, 10)] == [True, None, False]


# Old leases by token, range and position, before and after each of the changes that no host noticed.
UNNOTICED = {
    "split 1, merge 0 and its child": [("-20", "", "20", None), ("4", "", "30", 30), ("3", "30", "FF", 30)],
    "then merge 4 and 3": [("-20", "", "20", None), ("-30", "", "30", 30), ("30-FF", "30", "FF", 30)],
    "then split 4": [("-20", "", "20", None), ("6", "", "20", 30), ("7", "20", "30", 30), ("3", "30", "FF", 30)],
    "then split 4 within it": [("-20", "", "20", None), ("6", "", "10", 30), ("7", "10", "30", 30)],
    "then split the one that is behind": [
        ("-10", "", "10", None),
        ("10-20", "10", "20", None),
        ("4", "", "30", 30),
    ],
    "then merge and split": [("-20", "", "20", None), ("-10", "", "10", 30), ("10-30", "10", "30", 30)],
    "the parent of a split has remained": [("0", "", "20", None), ("2", "", "10", 30), ("3", "10", "20", 30)],
    "two ranges of the same beginning": [("-20", "", "20", None), ("-10", "", "10", 30)],
}


@pytest.mark.parametrize("leases", UNNOTICED.values(), ids=UNNOTICED)
async def test_what_one_lease_has_not_passed_is_not_done(leases: list[tuple[str, str, str, int | None]]) -> None:
    positions = await read(
        *(stored(f"127.0.0.1_db_coll..{token}", lsn, *bounds) for token, *bounds, lsn in leases)
    )

    assert [await positions.has_passed("08", lsn) for lsn in (1, 5, 30)] == [False, False, False]
    assert [await positions.passed("08", lsn) for lsn in (1, 30, 31)] == [None, None, False]


async def test_where_one_lease_covers_a_key_it_alone_decides() -> None:
    positions = await read(
        *(stored(f"127.0.0.1_db_coll..{each[0]}", each[3], *each[1:3]) for each in UNNOTICED["then merge 4 and 3"])
    )

    assert [await positions.has_passed(key, 30) for key in ("1F", "20", "30")] == [False, True, True]
    assert [await positions.lease_of(key) for key in ("1F", "20", "30")] == positions.leases


async def test_a_lease_whose_range_nobody_knows_may_cover_any_key() -> None:
    old = {"id": "127.0.0.1_db_coll..0", "LeaseToken": "0", "Owner": None, "ContinuationToken": '"5"'}
    alone = await read(old)
    beside = await read(old, stored("127.0.0.1_db_coll..4", 30, "", "30"))

    assert await alone.passed("10", 5) is None
    assert [await beside.passed("10", lsn) for lsn in (5, 6, 31)] == [True, None, False]
    assert [lease.token for lease in beside.leases] == ["4"]


async def test_a_key_is_hashed_only_where_the_leases_disagree() -> None:
    monitored = Monitored()
    halves = [LeasePosition("a..0", "", "40", None, '"5"'), LeasePosition("a..1", "40", "FF", None, '"9"')]
    positions = Positions(EffectiveKeys(cast(ContainerProxy, monitored), {}), halves)

    assert [await positions.has_passed("30", lsn) for lsn in (5, 10)] == [True, False]
    assert monitored.asked == 0
    assert [await positions.has_passed(key, 7) for key in ("30", "30", "50")] == [False, False, True]
    assert monitored.asked == 2
    assert [await positions.has_passed(key, 9) for key in ("30", "50")] == [False, True]


async def test_a_key_that_no_lease_covers_is_not_passed() -> None:
    positions = await read(stored("127.0.0.1_db_coll..0", 9, "20", "40"))

    assert [await positions.has_passed(key, 5) for key in ("1F", "20", "3F", "40")] == [False, True, True, False]


async def test_the_leases_of_a_key_and_of_a_range_are_those_that_cover_it() -> None:
    positions = await read(
        stored("127.0.0.1_db_coll..0", 9, "10", "20"),
        stored("127.0.0.1_db_coll..1", 9, "20", "40"),
        stored("127.0.0.1_db_coll..2", 9, "20", "60"),
    )

    found = [await positions.lease_of(key) for key in ("0F", "10", "20", "50")]
    assert [None if lease is None else lease.token for lease in found] == [None, "0", "1", "2"]
    ranges = [("00", "10"), ("00", "11"), ("20", "30"), ("1F", "20"), ("40", "60"), ("60", "FF")]
    within = [positions.within({"Range": {"min": minimum, "max": maximum}}) for minimum, maximum in ranges]
    assert [[lease.token for lease in each] for each in within] == [[], ["0"], ["1", "2"], ["0"], ["2"], []]


async def test_an_effective_key_is_asked_for_once() -> None:
    monitored = Monitored()
    keys = EffectiveKeys(cast(ContainerProxy, monitored), {})
    positions = Positions(keys, [LeasePosition("a..0", "", "FF", None, None)])

    assert [await positions.passed(key, 1) for key in ("30", "30", "31")] == [False, False, False]
    assert monitored.asked == 2


async def test_leases_of_other_containers_and_of_other_functions_do_not_count() -> None:
    positions = await read(
        stored("127.0.0.1_db_coll..0", 5),
        stored("127.0.0.1_db_other..0", 1),
        stored("other-function127.0.0.1_db_coll..0", 2),
        {"id": "127.0.0.1_db_coll..info"},
    )

    assert [lease.id for lease in positions.leases] == ["127.0.0.1_db_coll..0"]


async def test_leases_with_a_prefix_count_where_there_are_no_others_and_they_may() -> None:
    prefixed = stored("prefix127.0.0.1_db_coll..0", 2)

    assert [lease.id for lease in (await read(prefixed)).leases] == [prefixed["id"]]
    assert (await read(prefixed, own_only=True)).leases == []


async def test_a_lease_of_a_host_whose_name_only_begins_alike_is_another_ones() -> None:
    longer = stored("127.0.0.10_db_coll..0", 2)

    assert (await read(longer, own_only=True)).leases == []
