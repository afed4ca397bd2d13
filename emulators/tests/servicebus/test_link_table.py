"""When a connection was last active: what its links carry counts, and so do links that come and go."""

from __future__ import annotations

import asyncio

import pytest
from proton import Event

from outbox_emulators.servicebus.frames import DeliveryTracker
from outbox_emulators.servicebus.link_table import LinkTable
from outbox_emulators.servicebus.links import LinkEndpoint


class FakeLink:
    """A link of the engine that does nothing."""

    _impl = "the engine's C object"

    def close(self) -> None:
        pass


class QuietEndpoint(LinkEndpoint):
    """An endpoint that answers nothing."""

    def open(self) -> None:
        pass


@pytest.fixture
async def links() -> LinkTable:
    return LinkTable(QuietEndpoint, DeliveryTracker(), lambda: None)


async def later() -> float:
    """Let a moment pass that the loop's clock can measure; returns the time after it."""
    await asyncio.sleep(0.01)
    return asyncio.get_running_loop().time()


async def test_a_connection_is_active_when_a_link_is_attached_carries_something_or_ends(links: LinkTable) -> None:
    link = FakeLink()

    for kind in (Event.LINK_REMOTE_OPEN, Event.LINK_FLOW, Event.LINK_REMOTE_CLOSE):
        before = await later()
        assert links.active_s < before
        links.handle(kind, link)
        assert links.active_s >= before

    assert links.items() == []
