"""The contents of large events in Blob Storage, as consumers and the checker of a campaign read them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from azure.storage.blob.aio import ContainerClient

from local.azurite.server import CONTAINER
from local.stack.parts import Part

ADDRESS = "dataRef"
"""The application property that has the address of a message's body (docs/large-events.md)."""

_SHA256 = "dataSha256"
_WITHIN_S = 30.0


class Contents:
    """Reads contents, each once.

    Attributes:
        read: Those that were read, by their addresses; empty where the hash is not the message's.
    """

    def __init__(self, container: ContainerClient) -> None:
        self._container = container
        self.read: dict[str, bytes] = {}

    async def body(self, body: bytes, properties: Mapping[Any, Any]) -> bytes:
        """Return the body of a message: its own, or that which it names. Raises AzureError, TimeoutError."""
        address, sha256 = _text(properties, ADDRESS), _text(properties, _SHA256)
        if not address:
            return body
        if address not in self.read:
            name = unquote(urlsplit(address).path).partition(f"/{CONTAINER}/")[2]
            async with asyncio.timeout(_WITHIN_S):
                content = await (await self._container.download_blob(name)).readall()
            self.read[address] = content if hashlib.sha256(content).hexdigest() == sha256 else b""
        return self.read[address]


def _text(properties: Mapping[Any, Any], name: str) -> str:
    value = properties.get(name.encode(), b"")
    return value.decode() if isinstance(value, bytes) else str(value)


@asynccontextmanager
async def open_contents(azurite: Part | None) -> AsyncIterator[Contents | None]:
    """The contents that a stack's Blob Storage has; None if it has none."""
    if azurite is None:
        yield None
        return
    connection_string = azurite.details["connection_string"]
    async with ContainerClient.from_connection_string(connection_string, CONTAINER) as container:
        yield Contents(container)
