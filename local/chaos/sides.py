"""The side of a stack's source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.cosmos.aio import CosmosClient

from local.chaos.admin import AdminPorts
from local.chaos.cosmos_side import CosmosSide
from local.chaos.history import Histories
from local.chaos.hosts import HostFaults
from local.chaos.sources import SourceSide
from local.stack.environment import Source
from local.stack.supervisor import Stack


@asynccontextmanager
async def open_side(
    stack: Stack, admin: AdminPorts, history: Histories, seed: int, *, frozen_s: float, function_timeout_s: float
) -> AsyncIterator[SourceSide]:
    """The side of the stack's source.

    Args:
        frozen_s: How long what relays stays frozen, in seconds.
        function_timeout_s: How long a function may take, in seconds.
    """
    if stack.source is Source.SQL:
        # Only then does it need the database's driver.
        from local.chaos.sql.side import SqlSide

        yield SqlSide(stack, history, seed, frozen_s=frozen_s)
        return
    async with CosmosClient.from_connection_string(stack.settings["COSMOS"]) as cosmos:
        hosts = HostFaults(stack, admin, history, seed, frozen_s=frozen_s)
        yield CosmosSide(stack, admin, cosmos, hosts, history.layout, seed, function_timeout_s=function_timeout_s)
