"""The state that a universe leaves behind when it has ended: nothing that runs later."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from verification.simulation import runner


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop that tasks begin in where none runs."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


def test_what_is_left_of_killed_processes_begins_nothing(loop: asyncio.AbstractEventLoop) -> None:
    kind = runner.kind_named("receiving")

    with runner.prepared():
        runner.run(kind, kind.plan(25))

    gc.collect()
    assert asyncio.all_tasks(loop) == set()
