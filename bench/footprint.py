"""`python -m bench.footprint`: one invocation in its own process, and how much memory it took.

It reads the trigger's text from a file, as the worker reads it from the host, decodes it, relays it, and prints as
JSON the bytes of the text and the peak growth of the resident size. tracemalloc would mislead: orjson (3.13)
reserves twelve times the size of a body of 20 KB, and does not touch most of it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import threading
from pathlib import Path

import psutil

from bench.broker import environment
from bench.documents import Source, Workload
from outbox_emulators.functions.documents import from_text
from relay.assembly import CosmosRelay, assemble
from relay.settings import Settings

_EVERY_S = 0.002


class Watch:
    """The highest resident size of this process within the block, in bytes, sampled every 2 ms."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._done = threading.Event()
        self.peak = 0

    def __enter__(self) -> Watch:
        self.peak = self.now()
        self._done.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.peak = max(self.peak, self.now())

    def now(self) -> int:
        return int(self._process.memory_info().rss)

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_S):
            self.peak = max(self.peak, self.now())


async def main() -> None:
    """Warm up, measure one invocation, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.footprint", description=__doc__)
    parser.add_argument("--connection-string", required=True)
    parser.add_argument("--text", type=Path, required=True, help="the trigger's JSON")
    arguments = parser.parse_args()
    relay = assemble(Settings.from_environment(environment(arguments.connection_string)))
    try:
        # Links, their buffers and late imports are not part of the measured invocation.
        (warm_up,) = Source(7).invocations(Workload(keys=64, per_key=1), 1)
        await relay.handle(warm_up, "warm-up")
        del warm_up
        gc.collect()
        found = await _measured(relay, arguments.text)
    finally:
        await relay.close()
    print(json.dumps(found))


def _read(path: Path) -> str:
    return path.read_text()


async def _measured(relay: CosmosRelay, path: Path) -> dict[str, float]:
    watch = Watch()
    before = watch.now()
    with watch:
        # The worker keeps the text while the function runs: it is the invocation's request.
        text = _read(path)
        documents = from_text(text)
        decoded = watch.now()
        await relay.handle(documents, "measured")
    return {
        "payload": len(text.encode()),
        "whole": watch.peak - before,
        "relay": watch.peak - decoded,
    }


if __name__ == "__main__":
    asyncio.run(main())
