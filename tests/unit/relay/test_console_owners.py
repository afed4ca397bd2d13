"""Owners of partitions that are gone, processes that have ended, and what the page says of both."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.model import Partition
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from outbox_relay.operator.console.status import headline
from relay.backends.findings import Finding, Level
from tests.support.console_deployment import NOW, Deployment


@pytest.fixture
def relayed() -> Deployment:
    """A relay whose host has renewed its two leases once."""
    made = Deployment()
    made.outbox.positions_at = {"0": (0, 0), "1": (0, 0)}
    made.outbox.renewals = {"0": 1, "1": 1}
    return made


async def look(relayed: Deployment, seconds: int = 0) -> list[int | None]:
    """Look once a second for this long; returns how long the lease of each owner that is gone lasts."""
    for _ in range(seconds + 1):
        snapshot = await relayed.observer.look()
        relayed.now += 1
    return [each.held_s for each in snapshot.partitions]


async def test_an_owner_that_renews_its_lease_is_alive(relayed: Deployment) -> None:
    for number in range(5):
        relayed.outbox.renewals = {"0": number, "1": number}
        assert await look(relayed, 17) == [None, None]


async def test_an_owner_that_does_not_renew_its_lease_is_gone_and_the_lease_ends(relayed: Deployment) -> None:
    assert await look(relayed, 30) == [None, None]

    assert await look(relayed) == [29, 29]
    assert await look(relayed, 30) == [-2, -2]

    # Another one has taken the first of them.
    relayed.outbox.renewals["0"] = 2
    assert await look(relayed) == [None, -3]


async def test_an_owner_that_is_known_to_have_ended_is_gone_at_once(relayed: Deployment) -> None:
    await look(relayed, 5)
    relayed.hosts.ended = {"host": relayed.now}

    assert await look(relayed) == [54, 54]


async def test_a_lease_is_counted_from_the_end_of_its_owner_where_nobody_looked_before(
    relayed: Deployment,
) -> None:
    relayed.hosts.ended = {"host": NOW - 40}

    assert await look(relayed) == [20, 20]


async def test_nothing_is_said_of_an_owner_while_nobody_looked(relayed: Deployment) -> None:
    await look(relayed)
    relayed.now += 600

    assert await look(relayed) == [None, None]


async def test_nothing_is_said_of_an_owner_whose_renewals_are_not_known(relayed: Deployment) -> None:
    relayed.outbox.renewals = {}
    relayed.hosts.ended = {"host": NOW}

    assert await look(relayed, 90) == [None, None]


def partition(name: str, held_s: int | None, behind: int = 0) -> Partition:
    return Partition(name, "functions-1-relay", "7", behind, 1.0, held_s=held_s)


@pytest.mark.parametrize(
    ("partitions", "level", "text"),
    [
        (
            [partition("0", 21)],
            Level.WARNING,
            "The owner of partition 0 is gone: its lease or claim ends within 21\N{NARROW NO-BREAK SPACE}s, "
            "and then another one takes over.",
        ),
        (
            [partition("0", 21), partition("1", 34, behind=5), partition("2", None)],
            Level.WARNING,
            "The owner of partition 0 and 1 more is gone: the last of its leases or claims ends within "
            "34\N{NARROW NO-BREAK SPACE}s, and then another one takes over.",
        ),
        (
            [partition("0", -3, behind=1)],
            Level.WARNING,
            "The owner of partition 0 is gone: its lease or claim has ended, and then another one takes over.",
        ),
        ([partition("0", -31, behind=1)], Level.ERROR, "Nobody reads partition 0."),
    ],
)
async def test_the_headline_says_that_an_owner_is_gone(
    relayed: Deployment, partitions: list[Partition], level: Level, text: str
) -> None:
    snapshot = replace(await relayed.observer.look(), partitions=partitions)

    found = headline(snapshot)

    assert (found.level, found.text) == (level, text)


async def test_the_partition_says_when_the_lease_of_its_owner_ends(relayed: Deployment) -> None:
    snapshot = replace(await relayed.observer.look(), partitions=[partition("0", 21)])

    html = Pages("t", ConsoleSettings(), Commands(), ()).sections(snapshot)["partitions"]

    assert "Owner gone, its lease or claim ends within 21" in html
    assert re.search("functions-1-relay</bdi> <span[^>]*>gone<", html)


async def test_a_process_that_has_ended_is_the_headline_and_a_loss_is_no_longer_one(relayed: Deployment) -> None:
    relayed.hosts.findings = [Finding.error("servicebus was killed by SIGKILL at 11:30:00 UTC", "Wait.")]
    away = headline(await relayed.observer.look())
    relayed.hosts.findings = [Finding.warning("servicebus was started again; its messages are lost", "Wait.")]
    relayed.outbox.commit("a", committed_at=NOW - 60)
    late = headline(await relayed.observer.look())
    relayed.outbox.pass_all()
    lost = headline(await relayed.observer.look())

    assert (away.level, away.text) == (Level.ERROR, "Servicebus was killed by SIGKILL at 11:30:00 UTC.")
    assert late.text.startswith("1 event waits")
    assert (lost.level, lost.text) == (Level.WARNING, "Servicebus was started again; its messages are lost.")
