"""For the tests of the simulation: what bounds a universe is its number of rounds, not the machine's clock."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Disable the time limit, whose signal would be raised within whatever simulated process runs."""
    item.add_marker(pytest.mark.timeout(0))
