"""Who may inject faults into Blob Storage: programs of this machine, and no page of another site."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from local.azurite.faults import FaultyBlobs

PLAN = '{"kind": "drop-blob", "count": 1}'


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with FaultyBlobs("http://127.0.0.1:1") as blobs:
        yield f"http://127.0.0.1:{blobs.port}/admin/faults"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=["origin", "rebinding", "fetch"],
)
async def test_a_page_of_another_site_injects_nothing(address: str, headers: dict[str, str]) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.post(address, data=PLAN, headers=headers) as refused:
            status = refused.status
        async with http.get(address) as listed:
            faults = await listed.json()
        async with http.post(address, data=PLAN, headers={"Content-Type": "application/json"}) as taken:
            assert taken.status == 200

    assert status == 403
    assert "drop-blob" not in str(faults)


@pytest.mark.parametrize("body", ["[" * 100_000, "{", "\ud800"])
async def test_a_body_that_is_no_plan_is_refused(address: str, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(address, data=body.encode(errors="surrogatepass"), headers=headers) as answer,
    ):
        assert answer.status == 400
