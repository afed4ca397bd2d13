"""The physical partitions of an outbox, which are split and merged under the relay."""

from __future__ import annotations

from local.chaos.admin import AdminPorts, NotInjected
from local.stack.environment import DATABASE
from local.stack.parts import Part

AT_FIRST = 4
"""Number of physical partitions when a campaign begins."""

_MOST_SPLITS = 8


class PhysicalPartitions:
    """Splits and merges those of a container, by their partition key range ids."""

    def __init__(self, admin: AdminPorts, outbox: Part, container: str) -> None:
        self._admin = admin
        self._container = {"database": DATABASE, "container": container}
        self._outbox = outbox
        # In the order of the keys.
        self._ids = [str(number) for number in range(AT_FIRST)]
        self._splits = self._merges = 0

    async def split(self) -> None:
        """Split the oldest one. Raises NotInjected after enough splits: each one adds a lease."""
        if self._splits >= _MOST_SPLITS:
            raise NotInjected(f"the container was split {_MOST_SPLITS} times already")
        at = self._ids.index(min(self._ids, key=int))
        made = await self._admin.post(self._outbox, "split", {**self._container, "range": self._ids[at]})
        self._ids[at : at + 1] = made["into"]
        self._splits += 1

    async def merge(self) -> None:
        """Merge two neighbours, others each time. Raises NotInjected when there is one partition left."""
        if len(self._ids) < 2:
            raise NotInjected("the container has one physical partition left")
        at = self._merges % (len(self._ids) - 1)
        made = await self._admin.post(self._outbox, "merge", {**self._container, "ranges": self._ids[at : at + 2]})
        self._ids[at : at + 2] = [made["into"]]
        self._merges += 1
