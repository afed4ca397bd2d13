"""The admin ports of a stack's parts, which may not answer while faults are injected."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from local.stack.parts import Part

_TIMEOUT_S = 10.0


class NotInjected(Exception):
    """A fault could not be injected because another one prevented it; the message says which and why."""


class AdminPorts:
    """Requests to `/admin/…` of any part. All raise NotInjected if the part cannot answer."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def get(self, part: Part, path: str) -> Any:
        return await self._request("GET", part, path, None)

    async def post(self, part: Part, path: str, content: dict[str, Any]) -> Any:
        return await self._request("POST", part, path, content)

    async def delete(self, part: Part, path: str) -> Any:
        return await self._request("DELETE", part, path, None)

    async def _request(self, method: str, part: Part, path: str, content: dict[str, Any] | None) -> Any:
        port = part.details.get("admin_port", part.details["port"])
        what = f"{method} /admin/{path} {content or ''}"
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                self._http.request(method, f"http://127.0.0.1:{port}/admin/{path}", json=content) as response,
            ):
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NotInjected(f"{what}: {type(error).__name__}") from error
        if response.status >= 500:
            raise NotInjected(f"{what}: {response.status} {answer}")
        if response.status >= 400:
            raise ValueError(f"{what}: {response.status} {answer}")
        return answer
