"""The app on the wire, with partitions that are split and merged before any host notices the first of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import verification.simulation.universe
from relay.backends.cosmos.effective_keys import effective_key
from relay.config.settings import OnPoison
from verification.journal import entries
from verification.journal.specification import Step
from verification.simulation import runner
from verification.simulation.faults import Fault
from verification.simulation.leases.controls import CONTROLS
from verification.simulation.plan import Plan, Result
from verification.simulation.wire import universe
from verification.simulation.wire.fault_injection import Strikes
from verification.simulation.wire.services import DATABASE

AHEAD, BEHIND = 40, 6
"""Number of events of the partition that is read before, and of the other one while nobody can read it."""


class Universe(universe.Universe):
    """A universe whose second partition has come further, when the first one gets events that nobody can read."""

    def _plan_commits(self) -> None:
        first, second = self.services.partitions
        for number in range(AHEAD):
            self.world.outside.at(20.0 + number, self._commit_in, second.id, f"a{number}")
        for number in range(BEHIND):
            self.world.outside.at(110.0 + number, self._commit_in, first.id, f"b{number}")

    def _commit_in(self, partition: str, name: str) -> None:
        container = self.services.gateway.account.catalog.container(DATABASE, "data")
        keys = (f"key-{number}" for number in range(100))
        key = next(each for each in keys if container.partition_of(effective_key(each)).id == partition)
        self._store(key, [verification.simulation.universe._document(key, name, 0)])


def fault(at: float, kind: str, target: int = 0, service: str = "account", lasts_s: float = 0.0) -> Fault:
    return Fault(at, kind, target, service, lasts_s, 0.0)


def plan(third: str) -> Plan:
    """Nobody can read for 400 s, then nothing can be sent for 150 s; the third change comes in between.

    In the universe of this seed an old lease is read again afterwards, whichever version of Python runs it.
    """
    faults = (
        fault(100.0, "down", lasts_s=400.0),
        fault(480.0, "split", 1),
        fault(481.0, "merge", 0),
        fault(490.0, "down", service="topic", lasts_s=150.0),
        fault(580.0, third, 0),
    )
    return Plan(2, 0, faults, OnPoison.SKIP)


@pytest.fixture(autouse=True)
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(universe, "Universe", Universe)
    monkeypatch.setattr(Strikes, "_has_old_leases", False)
    with runner.prepared():
        yield


def lost(result: Result) -> list[str]:
    """The events that were not published, of those that only the old lease delivers."""
    accepted = {entry.id for entry in result.journal if isinstance(entry, entries.Accepted)}
    return [name for number in range(BEHIND) if (name := f"b{number}-0") not in accepted]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("third", ["split", "merge"])
def test_what_only_an_old_lease_delivers_is_published(third: str) -> None:
    result = runner.run(universe, plan(third))

    assert lost(result) == []
    # The processor lets the new leases begin behind those events. Nothing else is wrong.
    assert {each.partition(":")[0] for each in result.violations} == {Step.PASSED}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("third", ["split", "merge"])
def test_the_former_rule_drops_it(third: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is never published: no need to wait for two hours.
    monkeypatch.setattr(verification.simulation.universe, "_PATIENCE_S", 60.0)

    with CONTROLS["RangesCountToo"].without():
        result = runner.run(universe, plan(third))

    assert len(lost(result)) == BEHIND
