"""Requests to a Cosmos DB account that the SDK would never send."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote

import aiohttp
from yarl import URL


@dataclass(frozen=True)
class Answer:
    """An HTTP response, read to its end.

    Attributes:
        status: The HTTP status.
        headers: The headers; their names are not case-sensitive.
        text: The body as text.
        content: The body's bytes; empty for answers about faults.
    """

    status: int
    headers: Mapping[str, str]
    text: str
    content: bytes = b""

    @property
    def body(self) -> Any:
        """The text as a JSON value."""
        return json.loads(self.text)


class RawClient:
    """Signs and sends any request.

    Like the SDK it sends the session tokens that it has received. With `is_stranger` it sends none.
    """

    def __init__(
        self, session: aiohttp.ClientSession, endpoint: str, key: str, *, is_stranger: bool = False
    ) -> None:
        self._session = session
        self._endpoint = endpoint.rstrip("/")
        self._key = base64.b64decode(key)
        self._is_stranger = is_stranger
        self._tokens: dict[tuple[str, ...], dict[str, str]] = {}

    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        sign: bool = True,
        encoded: bool = False,
    ) -> Answer:
        """Send one request. With `encoded` the path is percent-encoded already and is sent as it is."""
        date = formatdate(usegmt=True)
        container = tuple(path.strip("/").split("/")[:4])
        tokens = self._tokens.setdefault(container, {})
        known = {"x-ms-session-token": ",".join(tokens.values())} if tokens and not self._is_stranger else {}
        sent = {"x-ms-date": date, "x-ms-version": "2020-07-15", **known, **(headers or {})}
        if sign:
            sent["authorization"] = self._signature(method, unquote(path) if encoded else path, date)
        content = body if isinstance(body, bytes) or body is None else str(body).encode()
        url = URL(self._endpoint + path, encoded=encoded)
        async with self._session.request(method, url, headers=sent, data=content) as response:
            if token := response.headers.get("x-ms-session-token"):
                tokens.update({each.partition(":")[0]: each for each in token.split(",")})
            content = await response.read()
            return Answer(response.status, response.headers, content.decode("utf-8", "replace"), content)

    def _signature(self, method: str, path: str, date: str) -> str:
        segments = [segment for segment in path.split("/") if segment]
        kind = segments[-1] if len(segments) % 2 else (segments[-2] if segments else "")
        link = "/".join(segments[:-1] if len(segments) % 2 else segments)
        text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        digest = hmac.digest(self._key, text.encode(), "sha256")
        return quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")
