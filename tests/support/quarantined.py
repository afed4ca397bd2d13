"""The content of a quarantine container, apart from orders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from azure.cosmos.aio import ContainerProxy

from relay.holds import ORDER_TYPE


async def quarantined(container: ContainerProxy) -> AsyncIterator[dict[str, Any]]:
    """Records, their parts, and markers of parked keys."""
    async for item in container.read_all_items():
        if item["type"] != ORDER_TYPE:
            yield item
