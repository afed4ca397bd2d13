"""For the tests of the simulation: what bounds a universe, and what its killed processes leave open."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from outbox_relay.emulators.functions import environment
from verification.simulation import runner

# Connections of the simulated network: none of them has a socket.
_LEFT_OPEN = ("ignore:loop is closed:ResourceWarning", "ignore:unclosed <StreamWriter:ResourceWarning")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Disable the time limit, whose signal would be raised within a simulated process, and expect what stays open.

    A universe is bounded by its number of rounds, not by the machine's clock.
    """
    item.add_marker(pytest.mark.timeout(0))
    for warning in _LEFT_OPEN:
        item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="module")
def prepared() -> Iterator[None]:
    """Let universes run in the tests of a module: to look through all modules that are loaded takes a while."""
    with runner.prepared():
        yield


@pytest.fixture(autouse=True)
def settings_of_hosts() -> Iterator[None]:
    """Remove the settings that simulated hosts have applied to this process."""
    before = dict(os.environ)
    yield
    environment._layers.clear()
    environment._outside.clear()
    os.environ.clear()
    os.environ.update(before)
