"""Faults of Blob Storage in campaigns: the proxy in front of Azurite, as a client and the admin port see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob.aio import ContainerClient

from local.azurite.faults import FaultyBlobs
from tests.support.azurite import Container
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly, pytest.mark.xdist_group("azurite")]


class Account:
    """A container behind the proxy, and the proxy's admin port."""

    def __init__(self, client: ContainerClient, http: aiohttp.ClientSession, port: int) -> None:
        self._client = client
        self._http = http
        self._admin = f"http://127.0.0.1:{port}/admin/faults"

    async def write(self, name: str) -> None:
        await self._client.upload_blob(name, b"{}", overwrite=True)

    async def inject(self, **plan: Any) -> Any:
        return await self._admin_request("POST", "", json=plan)

    async def show(self, identifier: int) -> Any:
        return await self._admin_request("GET", f"/{identifier}")

    async def end(self, identifier: int) -> Any:
        return await self._admin_request("DELETE", f"/{identifier}")

    async def applied(self) -> Any:
        return (await self._admin_request("GET", ""))["applied"]

    async def until_withheld(self, identifier: int) -> dict[str, Any]:
        async with asyncio.timeout(WATCHDOG_S):
            while not (withheld := (await self.show(identifier))["withheld"]):
                await asyncio.sleep(0.01)  # another task's request can only be asked for again and again
        return dict(withheld)

    async def _admin_request(self, method: str, path: str, **options: Any) -> Any:
        async with self._http.request(method, self._admin + path, **options) as answer:
            return await answer.json()


@pytest.fixture
async def account(blobs: Container, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Account]:
    monkeypatch.setenv("AZURE_HTTP_USER_AGENT", "worker-7")
    parts = urlsplit(blobs.connection_string.partition("BlobEndpoint=")[2])
    upstream = f"{parts.scheme}://{parts.netloc}"
    async with FaultyBlobs(upstream) as faulty, aiohttp.ClientSession() as http:
        through = blobs.connection_string.replace(upstream, f"http://127.0.0.1:{faulty.port}")
        name = blobs.settings["RELAY_BLOB_CONTAINER"]
        async with ContainerClient.from_connection_string(through, name, retry_total=0, read_timeout=1) as client:
            yield Account(client, http, faulty.port)


@pytest.mark.parametrize(
    ("plan", "status", "is_stored"),
    [
        ({"kind": "refuse-blob", "status": 409, "count": 1}, 409, False),
        # aiohttp sends a request again whose connection was closed.
        ({"kind": "drop-blob", "count": 2}, None, False),
        ({"kind": "drop-after-blob", "count": 2}, None, True),
        ({"kind": "silent-blobs", "count": 1}, None, False),
        ({"kind": "silent-blobs", "count": 1, "applies": True}, None, True),
    ],
)
async def test_a_write_fails_as_the_fault_says_and_the_next_one_does_not(
    account: Account, blobs: Container, plan: dict[str, Any], status: int | None, is_stored: bool
) -> None:
    await account.inject(**plan)

    with pytest.raises(AzureError) as raised:
        await account.write("first")
    await account.write("second")

    found = raised.value.status_code if isinstance(raised.value, HttpResponseError) else None
    assert found == status
    assert set(await blobs.stored()) == {"second", *(["first"] if is_stored else [])}
    assert await account.applied() == {plan["kind"]: plan["count"]}


async def test_one_answer_is_withheld_from_a_process_that_is_named_until_the_fault_ends(
    account: Account, blobs: Container
) -> None:
    identifier = (await account.inject(kind="withhold-answer", for_ms=60_000))["id"]
    writing = asyncio.create_task(account.write("first"))

    withheld = await account.until_withheld(identifier)
    await account.write("second")

    assert (withheld["by"], withheld["answered"], withheld["client_left"]) == ("worker-7", False, False)
    assert withheld["path"].endswith("/first")
    assert set(await blobs.stored()) == {"first", "second"}
    assert not writing.done()
    await account.end(identifier)
    await writing
    assert (await account.show(identifier))["withheld"]["answered"]


async def test_a_client_that_leaves_before_its_answer_is_seen(account: Account) -> None:
    identifier = (await account.inject(kind="withhold-answer", for_ms=60_000))["id"]
    writing = asyncio.create_task(account.write("first"))
    await account.until_withheld(identifier)

    writing.cancel()
    await asyncio.wait([writing])

    async with asyncio.timeout(WATCHDOG_S):
        while not (await account.show(identifier))["withheld"]["client_left"]:
            await asyncio.sleep(0.01)  # the proxy sees the end of a connection a little later
    await account.write("second")


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"kind": "lose-blob", "count": 1}, "kind is 'lose-blob'"),
        ({"kind": "drop-blob"}, "count or for_ms is missing"),
        ({"kind": "refuse-blob", "count": 1, "status": 418}, "status must be one of 403, 404"),
        ({"kind": "drop-blob", "count": 1, "blob": "x"}, "blob is not a known property"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused(
    account: Account, plan: dict[str, Any], problem: str
) -> None:
    assert problem in (await account.inject(**plan))["error"]
