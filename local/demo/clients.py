"""Concurrent clients of the contact service; some collide at one contact on purpose."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx

from local.demo.load import Pace, Progress
from local.demo.scenarios import Changes, Collision, Creation, Deletion, Step

_TIMEOUT_S = 60.0
_PAGE = 200


class UnexpectedAnswer(Exception):
    """The service gave a wrong answer; the message names the request and the answer."""


class Clients:
    """`count` clients, each with its own connections."""

    def __init__(self, address: str, count: int) -> None:
        self.progress = Progress()
        self._address = address
        self._count = count
        self._clients: list[httpx.AsyncClient] = []
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Clients:
        # There is no TLS here, and each client would load all certificates.
        certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for _ in range(self._count):
            client = httpx.AsyncClient(base_url=self._address, timeout=_TIMEOUT_S, verify=certificates)
            self._clients.append(await self._closing.enter_async_context(client))
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._closing.aclose()

    async def run(self, scenarios: list[Iterator[Step]], rate: float) -> None:
        """Run every scenario at `rate` events a second in total; each client runs one scenario at a time.

        Raises:
            ExceptionGroup: Of UnexpectedAnswer or of httpx's errors.
        """
        pace = Pace(rate)
        waiting = iter(scenarios)

        async def work(number: int) -> None:
            client, other = self._clients[number], self._clients[(number + 1) % self._count]
            for scenario in waiting:
                contact = _Contact(client, other, self.progress)
                for step in scenario:
                    await pace.take(step.events)
                    await contact.take(step)
                    self.progress.events += step.events

        async with asyncio.TaskGroup() as tasks:
            for number in range(self._count):
                tasks.create_task(work(number))

    async def contacts(self) -> dict[str, dict[str, Any]]:
        """Return every contact by id, read page by page: its id, name, description, email and company."""
        found: dict[str, dict[str, Any]] = {}
        parameters: dict[str, Any] = {"pageSize": _PAGE}
        while True:
            page = _expect(await self._clients[0].get("/contacts", params=parameters), 200).json()
            for contact in page["items"]:
                names = ("id", "name", "description", "email", "company")
                found[contact["id"]] = {name: contact[name] for name in names}
            if page["continuation"] is None:
                return found
            parameters["continuation"] = page["continuation"]


class _Contact:
    """One contact, written by one client, and by another one in its collisions."""

    def __init__(self, client: httpx.AsyncClient, other: httpx.AsyncClient, progress: Progress) -> None:
        self._client = client
        self._other = other
        self._progress = progress
        self._path = ""
        self._etag = ""

    async def take(self, step: Step) -> None:
        match step:
            case Creation():
                await self._create(step.contact)
            case Changes():
                await self._change(self._client, step, self._etag)
            case Collision():
                await self._collide(step)
            case Deletion():
                await self._send(self._client, "DELETE", self._path, self._etag, expected=204)

    async def _create(self, contact: dict[str, Any]) -> None:
        answer = await self._send(self._client, "POST", "/contacts", None, contact, expected=201)
        self._path, self._etag = answer.headers["Location"], answer.headers["ETag"]

    async def _collide(self, collision: Collision) -> None:
        """Collide two changes that name the same version.

        One succeeds, and the other reads again and repeats its change.
        """
        etag = self._etag
        changes_by_client = ((self._client, collision.one), (self._other, collision.other))
        refused = await asyncio.gather(
            *(self._try(client, changes, etag) for client, changes in changes_by_client)
        )
        if sum(refused) != 1:
            raise UnexpectedAnswer(
                f"{self._path}: {sum(refused)} of two changes of one version were refused instead of 1"
            )
        self._progress.refused += 1
        client, changes = changes_by_client[refused.index(True)]
        latest = await self._send(client, "GET", self._path, None, expected=200)
        await self._change(client, changes, latest.headers["ETag"])

    async def _try(self, client: httpx.AsyncClient, changes: Changes, etag: str) -> bool:
        """Try a change; returns whether it was refused as outdated."""
        answer = await self._request_change(client, changes, etag)
        if answer.status_code == 412:
            return True
        _expect(answer, 200)
        return False

    async def _change(self, client: httpx.AsyncClient, changes: Changes, etag: str) -> None:
        answer = await self._request_change(client, changes, etag)
        self._etag = _expect(answer, 200).headers["ETag"]

    async def _request_change(self, client: httpx.AsyncClient, changes: Changes, etag: str) -> httpx.Response:
        if len(changes.values) > 1:
            return await self._request(client, "PATCH", self._path, etag, changes.values)
        ((aspect, value),) = changes.values.items()
        body = {aspect: value} if isinstance(value, str) else value
        return await self._request(client, "PUT", f"{self._path}/{aspect}", etag, body)

    async def _send(
        self,
        client: httpx.AsyncClient,
        method: str,
        path: str,
        etag: str | None,
        body: Any = None,
        *,
        expected: int,
    ) -> httpx.Response:
        return _expect(await self._request(client, method, path, etag, body), expected)

    async def _request(
        self, client: httpx.AsyncClient, method: str, path: str, etag: str | None, body: Any = None
    ) -> httpx.Response:
        """Make one request, repeated while the service answers 429, which means that it did nothing."""
        headers = {} if etag is None else {"If-Match": etag}
        while True:
            answer = await client.request(method, path, json=body, headers=headers)
            self._progress.requests += 1
            if answer.status_code != 429:
                return answer
            await asyncio.sleep(int(answer.headers["Retry-After"]))


def _expect(answer: httpx.Response, status: int) -> httpx.Response:
    if answer.status_code != status:
        request = answer.request
        raise UnexpectedAnswer(f"{request.method} {request.url.path}: {answer.status_code} {answer.text}")
    return answer
