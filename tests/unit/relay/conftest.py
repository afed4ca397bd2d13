from __future__ import annotations

import pytest

from relay.telemetry import instruments
from relay.telemetry.headroom import Headroom
from relay.telemetry.instruments import BoundedActions
from tests.support.in_memory_items import InMemoryItems
from tests.support.telemetry import Telemetry, installed


@pytest.fixture
def items() -> InMemoryItems:
    return InMemoryItems()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    """What is reported from here on, with nothing left of other tests."""
    monkeypatch.setattr(instruments, "headroom", Headroom())
    monkeypatch.setattr(instruments, "_actions", BoundedActions())
    telemetry_in_memory = installed()
    telemetry_in_memory.forget()
    return telemetry_in_memory
