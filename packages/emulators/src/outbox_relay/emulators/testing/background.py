"""An event loop on its own thread, for emulators used by tests that may block or bring another loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """A running loop; `wait` may be called from any other thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and block until it has ended; returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def background_loop() -> Iterator[BackgroundLoop]:
    """Run an event loop on another thread for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="outbox-relay-emulators", daemon=True)
    thread.start()
    try:
        yield BackgroundLoop(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
