"""Blob Storage on this machine: Azurite, Microsoft's own emulator, from npm.

https://learn.microsoft.com/azure/storage/common/storage-use-azurite
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from local.stack.parts import until_ended

FOLDER = Path(__file__).parent
CONTAINER = "large-events"

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 5.0
_LISTENS = re.compile(rb"successfully listens on http://127\.0\.0\.1:(\d+)")

# https://github.com/Azure/Azurite#default-storage-account
ACCOUNT = "devstoreaccount1"
"""The account of every Azurite."""
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzuriteFailed(Exception):
    """Azurite could not be started; the message says why."""


def connection_string(endpoint: str) -> str:
    """Return the connection string of an Azurite at this address. Its key is the public one of every Azurite."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={_KEY};BlobEndpoint={endpoint}/{ACCOUNT};"
    )


def missing() -> str | None:
    """Return the reason why Azurite cannot be started here, and the remedy, or None if it can."""
    if shutil.which("node") is None:
        return "Node is not installed"
    if not (FOLDER / "node_modules" / "azurite").is_dir():
        return "Azurite is not installed: run `make blobs`"
    return None


class Azurite:
    """A storage account in memory, with the container of large events. Use it with `async with`.

    Attributes:
        port: On 127.0.0.1; known once it is started.
    """

    def __init__(self, port: int = 0) -> None:
        """`port` 0 takes a free one."""
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    @property
    def endpoint(self) -> str:
        """Its address: scheme, host and port."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def connection_string(self) -> str:
        """For the setting BLOBS."""
        return connection_string(self.endpoint)

    async def __aenter__(self) -> Self:
        """Start Azurite. Raises AzuriteFailed."""
        if (why := missing()) is not None:
            raise AzuriteFailed(why)
        self._process = await asyncio.create_subprocess_exec(
            *("node", str(FOLDER / "serve.cjs"), "--blobPort", str(self.port), "--inMemoryPersistence"),
            # The Python SDK asks for a later version of the API than Azurite knows.
            *("--skipApiVersionCheck", "--disableTelemetry", "--silent"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr,
        )
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                self.port = await self._listens()
            await self._create_container()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise AzuriteFailed(f"Azurite was not ready within {_START_TIMEOUT_S:g} s") from error
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait(self) -> int:
        """Wait until it has ended; returns its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """End it; what it has stored is gone."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        await until_ended(process, _STOP_TIMEOUT_S)

    async def _listens(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if found := _LISTENS.search(line):
                return int(found[1])
        raise AzuriteFailed(f"Azurite ended with exit code {await self._process.wait()}; see its log")

    async def _create_container(self) -> None:
        from azure.storage.blob.aio import ContainerClient

        async with ContainerClient.from_connection_string(self.connection_string, CONTAINER) as client:
            await client.create_container()
