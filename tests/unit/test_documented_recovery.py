"""docs/recovery.md and docs/runbook.md: until leases are balanced, and what consumers know."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from outbox_relay.emulators.functions.leases import Lease
from outbox_relay.emulators.functions.listener import leases_to_take
from outbox_relay.inbox import SqliteConnection, SqliteStore
from outbox_relay.inbox.stores.port import advance
from tests.support.closing import CloseLater
from tests.unit.test_documented_names import page

ACQUIRE_S = 13
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROWS = re.findall(
    r"^\| (\d+) \| (\d+) → (\d+) \| (\d+) \| (\d+) (seconds at most; 16 were measured|minutes) \|$",
    page("docs/recovery.md"),
    re.MULTILINE,
)


def lease(number: int, owner: str) -> Lease:
    document = {
        "id": f"l{number:03}",
        "LeaseToken": str(number),
        "Owner": owner,
        "timestamp": NOW.isoformat(),
        "_etag": "1",
    }
    return Lease.from_document(document)


def looks_until_balanced(leases: list[Lease], hosts: list[str]) -> int:
    """Number of times that each host looks for leases to take, until none takes any."""
    looks = 0
    while True:
        taken = 0
        for host in hosts:
            chosen = {each.id for each in leases_to_take(leases, host=host, now=NOW, expiration_s=60)}
            leases = [replace(each, owner=host) if each.id in chosen else each for each in leases]
            taken += len(chosen)
        if not taken:
            return looks
        looks += 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:3]))
def test_the_time_until_leases_are_balanced_grows_with_those_that_move(row: tuple[str, ...]) -> None:
    count, before, after, moved, time, unit = row
    hosts = [f"h{number}" for number in range(int(after))]
    leases = [lease(number, hosts[number % int(before)]) for number in range(int(count))]

    looks = looks_until_balanced(leases, hosts)

    assert looks == int(moved)
    seconds = looks * ACQUIRE_S
    assert (seconds if unit.startswith("seconds") else round(seconds / 60)) == int(time)


def test_the_pages_agree_about_a_second_host() -> None:
    assert len(ROWS) == 4
    [row] = re.findall(r"^\| a second host starts \|.*$", page("docs/runbook.md"), re.MULTILINE)
    assert f"| {ACQUIRE_S} for each lease that moves |" in row


def test_the_ids_that_a_consumer_has_handled_are_found_as_the_page_says(close_later: CloseLater) -> None:
    [query] = re.findall(r"`(select id from inbox_handled [^`]+)`", page("docs/recovery.md"))
    restored_to = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
    connection = close_later(SqliteConnection(":memory:"))
    SqliteStore(connection)
    connection.executemany(
        "INSERT INTO inbox_handled VALUES ('', ?, 'k', 't', ?)",
        [("before", restored_to - 1), ("after", restored_to + 1)],
    )

    assert connection.execute(query).fetchall() == [("after",)]


def test_an_event_that_gets_a_lost_number_is_late() -> None:
    """The numbers of lost events come again: a consumer has handled higher ones."""
    assert advance(last=7, gap=None, sequence=5).arrival.late
