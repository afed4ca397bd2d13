"""Contents of large events in memory; it passes the contract suite in `tests/contracts`, as Blob Storage does."""

from __future__ import annotations

import asyncio

from relay.core.errors import ContentError
from relay.large.content import Content


class InMemoryContents:
    """A `claims.ContentStore`.

    Attributes:
        stored: The bodies by name.
        broken: Nothing can be stored.
        hangs: Nothing is answered.
        bytes_s: Bytes a second at which it takes each content, by `virtual_time`; None if it takes no time.
        closed: Whether it was closed.
    """

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.broken = False
        self.hangs = False
        self.bytes_s: float | None = None
        self.closed = False

    async def put(self, content: Content) -> str:
        if self.hangs:
            await asyncio.Event().wait()
        if self.bytes_s is not None:
            await asyncio.sleep(len(content.body) / self.bytes_s)
        if self.broken:
            raise ContentError("The container does not exist. Create the container.")
        self.stored[content.name] = content.body
        return f"memory://contents/{content.name}"

    async def close(self) -> None:
        self.closed = True
