from __future__ import annotations

from weakref import WeakSet

import pytest

from relay.telemetry import instruments
from tests.support.in_memory_items import InMemoryItems
from tests.support.telemetry import Telemetry, installed


@pytest.fixture
def items() -> InMemoryItems:
    return InMemoryItems()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    """The metrics reported from here on, without those of other tests."""
    monkeypatch.setattr(instruments, "_headrooms", WeakSet())
    monkeypatch.setattr(instruments, "_shard_ages", WeakSet())
    monkeypatch.setattr(instruments, "_lease_ages", WeakSet())
    telemetry_in_memory = installed()
    telemetry_in_memory.forget()
    return telemetry_in_memory
