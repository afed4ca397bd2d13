"""The state that a library keeps for its whole process.

Each simulated process has its own, or all have the same.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from azure.cosmos._routing.aio import routing_map_provider as routing

from verification.simulation.world import Process, World

# azure-cosmos (4.17) shares the ranges of a container between all clients of a process.
_SHARED = (
    "_shared_routing_map_cache",
    "_shared_collection_locks",
    "_shared_locks_locks",
    "_shared_cache_refcounts",
)


class OfProcess(MutableMapping[Any, Any]):
    """A dictionary that is another one in each process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dictionaries: dict[Process, dict[Any, Any]] = {}

    @property
    def _own(self) -> dict[Any, Any]:
        return self._dictionaries.setdefault(self._world.running, {})

    def __getitem__(self, key: Any) -> Any:
        return self._own[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._own[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


@contextmanager
def of(world: World) -> Iterator[None]:
    """Let each process of the world have its own, until the block ends."""
    module, tls = vars(routing), vars(ssl)
    before = {name: module[name] for name in _SHARED}
    create_context = tls["create_default_context"]
    module.update({name: OfProcess(world) for name in _SHARED})
    # Reading the certificates takes 25 ms, and nothing here is encrypted.
    tls["create_default_context"] = _context
    try:
        yield
    finally:
        module.update(before)
        tls["create_default_context"] = create_context


_context = functools.cache(ssl.create_default_context)
