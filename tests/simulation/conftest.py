"""For the tests of the simulation: what bounds a universe is its number of rounds, not the machine's clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation import runner


def pytest_itemcollected(item: pytest.Item) -> None:
    """Disable the time limit, whose signal would be raised within whatever simulated process runs."""
    item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(scope="module")
def prepared() -> Iterator[None]:
    """Let universes run in the tests of a module: to look through all modules that are loaded takes a while."""
    with runner.prepared():
        yield
