"""Whole stacks, each part a process, for tests that need the app under a Functions host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE
from local.stack.parts import ROOT
from local.stack.supervisor import Stack, StackOptions
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

_QUICK = ("--lease-acquire-ms", "500", "--lease-renew-ms", "500", "--lease-expiration-ms", "2000")


class RunningStack:
    """A stack with what a test does to it."""

    def __init__(self, stack: Stack, cosmos: CosmosClient, http: aiohttp.ClientSession) -> None:
        self.stack = stack
        self._cosmos = cosmos
        self._http = http

    def container(self, name: str) -> ContainerProxy:
        """A container of the stack's database."""
        return self._cosmos.get_database_client(DATABASE).get_container_client(name)

    async def create_container(self, name: str, partition_key: str) -> ContainerProxy:
        """A new container of the stack's database."""
        return await self._cosmos.get_database_client(DATABASE).create_container(name, PartitionKey(partition_key))

    @property
    def admin_port(self) -> int:
        """Service Bus's admin port."""
        return int(self.stack.servicebus.details["admin_port"])

    async def function_status(self) -> dict[str, Any]:
        """The counts of the function that relays, in the first host."""
        url = f"http://127.0.0.1:{self.stack.hosts[0].details['port']}/admin/status"
        async with self._http.get(url) as response:
            statuses = {each["name"]: each for each in (await response.json())["functions"]}
            counts: dict[str, Any] = statuses["relay"]
            return counts

    async def until_function(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the function's counts satisfy `reached`."""
        async with asyncio.timeout(WATCHDOG_S):
            while not reached(await self.function_status()):
                await look_again()  # a host can only be asked


@asynccontextmanager
async def running_stack(logs: Path, *, app: Path = ROOT, **settings: str) -> AsyncIterator[RunningStack]:
    """A stack on free ports that runs `app` with `settings` in addition to the defaults."""
    options = StackOptions(
        app=app, logs=logs, host_options=_QUICK, settings={"RELAY_POLL_DELAY_MS": "50", **settings}
    )
    async with (
        Stack(options) as stack,
        CosmosClient.from_connection_string(stack.settings["COSMOS"]) as cosmos,
        aiohttp.ClientSession() as http,
    ):
        yield RunningStack(stack, cosmos, http)
