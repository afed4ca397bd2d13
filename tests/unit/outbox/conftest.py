"""A container context without a container."""

from __future__ import annotations

from typing import cast

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.outbox.context import ContainerContext


@pytest.fixture
def context() -> ContainerContext:
    return ContainerContext(cast(ContainerProxy, None), event_ttl=864_000, event_type="domainEvent")
