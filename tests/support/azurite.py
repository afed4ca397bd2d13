"""Azurite for the tests of one pytest process, a container of it for each test, and faults on the way to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest
from aiohttp import web
from azure.storage.blob.aio import ContainerClient

from local.azurite import server
from local.azurite.proxy import Passing, Proxy
from local.stack.parts import ROOT
from outbox_relay.emulators.process import READY


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """The connection string of an account. Skips where it is not installed, but not in CI."""
    in_ci = os.environ.get("CI") == "true" and "NPM_UNREACHABLE" not in os.environ
    if not in_ci and (why := server.missing()) is not None:
        pytest.skip(why)
    with subprocess.Popen(
        [sys.executable, "-m", "local", "azurite", "--port", "0", "--exit-with-stdin"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), line
        yield json.loads(line.removeprefix(READY))["connection_string"]
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)


@dataclass(frozen=True, slots=True)
class Stored:
    """A blob."""

    body: bytes
    content_type: str | None


class Container:
    """A container, on a way to the account where faults can be injected.

    Attributes:
        connection_string: Of the account, by that way.
        settings: The settings of a relay that stores large events here.
        faults: What becomes of the next requests: an HTTP status, or `hang`, `cut` before the account has got the
            request, `lost` after it, or `pass`. Each counts once, the last one for good.
        writes: Number of requests that write.
        answered: Number of bytes in the bodies of the account's answers.
    """

    def __init__(self, client: ContainerClient, connection_string: str) -> None:
        self._client = client
        self.connection_string = connection_string
        self.faults: list[int | str] = []
        self.writes = 0
        self.answered = 0

    @property
    def settings(self) -> dict[str, str]:
        return {
            "RELAY_LARGE": "claim-check",
            "BLOBS": self.connection_string,
            "RELAY_BLOB_CONTAINER": self._client.container_name,
        }

    async def stored(self) -> dict[str, Stored]:
        """The blobs by their names."""
        found = {}
        async for each in self._client.list_blobs():
            blob = self._client.get_blob_client(each.name)
            download = await blob.download_blob()
            found[each.name] = Stored(await download.readall(), download.properties.content_settings.content_type)
        return found

    def client(self) -> ContainerClient:
        """A client of the container, by the same way. Its owner closes it."""
        return ContainerClient.from_connection_string(self.connection_string, self._client.container_name)

    async def handle(self, passing: Passing) -> web.StreamResponse:
        """Pass a request on, or do what a fault says."""
        self.writes += passing.request.method == "PUT"
        fault = self.faults[0] if self.faults else None
        del self.faults[: len(self.faults) > 1]
        if isinstance(fault, int):
            return await passing.refuse(fault)
        if fault == "hang":
            await passing.hold()
        if fault in ("cut", "hang"):
            return passing.reset()
        answer = await passing.answer()
        self.answered += len(answer.body or b"")  # type: ignore[arg-type]
        return passing.reset() if fault == "lost" else answer


@pytest.fixture
async def blobs(azurite: str) -> AsyncIterator[Container]:
    """An empty container."""
    async with new_container(azurite) as made:
        yield made


@asynccontextmanager
async def new_container(azurite: str) -> AsyncIterator[Container]:
    """An empty container of the account with this connection string."""
    async with ContainerClient.from_connection_string(azurite, f"large-{uuid4()}") as client:
        await client.create_container()
        container = Container(client, azurite)
        endpoint = client.primary_endpoint.partition("/devstoreaccount1")[0]
        async with Proxy(endpoint, container.handle) as proxy:
            container.connection_string = azurite.replace(endpoint, f"http://127.0.0.1:{proxy.port}")
            yield container
