"""How long a process owns a shard: less long than those who watch it wait."""

from __future__ import annotations

import pytest

from relay.backends.sql import source
from relay.backends.sql.source import Ownership


class Clocks:
    """The two clocks of the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steady, self.wall = 1000.0, 5000.0
        monkeypatch.setattr(source, "now", lambda: (self.steady, self.wall))

    def go(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_a_claim_holds_for_four_fifths_of_its_time(clocks: Clocks) -> None:
    owned = Ownership(10, source.now())

    clocks.go(7.9)
    assert owned.holds()
    clocks.go(0.1)
    assert not owned.holds()


def test_a_renewal_counts_from_before_it_was_asked_for(clocks: Clocks) -> None:
    owned = Ownership(10, source.now())
    clocks.go(5)
    before = source.now()
    clocks.go(2)

    owned.renewed(before)

    clocks.go(5.9)
    assert owned.holds()
    clocks.go(0.1)
    assert not owned.holds()


def test_an_older_renewal_takes_nothing_back(clocks: Clocks) -> None:
    before = source.now()
    clocks.go(5)
    owned = Ownership(10, source.now())

    owned.renewed(before)

    clocks.go(7)
    assert owned.holds()


def test_a_machine_that_was_paused_has_lost_its_claim_by_the_walls_clock(clocks: Clocks) -> None:
    owned = Ownership(10, source.now())

    clocks.wall += 3600

    assert not owned.holds()


def test_a_wall_clock_that_is_set_back_does_not_prolong_a_claim(clocks: Clocks) -> None:
    owned = Ownership(10, source.now())
    clocks.wall -= 3600

    clocks.go(8)

    assert not owned.holds()


def test_a_claim_that_was_lost_does_not_come_back(clocks: Clocks) -> None:
    owned = Ownership(10, source.now())

    owned.end()
    owned.renewed(source.now())

    assert not owned.holds()


def test_the_clocks_of_this_machine_go_on() -> None:
    before = source.now()

    assert all(later >= earlier for earlier, later in zip(before, source.now(), strict=True))
