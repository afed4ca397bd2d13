"""The contact service's API as a part of the stack."""

from __future__ import annotations

import httpx
import pytest

from local.demo.service import guarded
from samples.contacts.api import create_app


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 200), ({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 403)],
)
async def test_pages_of_other_sites_are_refused(headers: dict[str, str], status: int) -> None:
    transport = httpx.ASGITransport(guarded(create_app()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        assert (await client.get("/openapi.json", headers=headers)).status_code == status
