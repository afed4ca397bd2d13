"""An event loop whose time passes at once if nothing is to be done: for tests that open no sockets."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")


class StuckError(Exception):
    """Every task waits, and nothing is due that could wake one."""


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StuckError
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`. `time.monotonic` is the loop's time meanwhile; what nobody has retrieved is raised."""
    unhandled: list[dict[str, Any]] = []

    def made() -> _Loop:
        loop = _Loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        return loop

    with asyncio.Runner(loop_factory=made) as runner, patch("time.monotonic", runner.get_loop().time):
        result = runner.run(work)
    assert not unhandled, unhandled
    return result
