"""The measurements that start processes, at a small scale."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from local.stack.environment import TOPIC
from verification.bench.amqp import PipelinedSender
from verification.bench.baselines.wire import encoded_batches
from verification.bench.broker import Broker
from verification.bench.documents import Source, Workload
from verification.bench.owncost import in_a_process

AVAILABLE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """Shared by the tests that send nothing twice."""
    async with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


async def test_a_dropped_duplicate_invalidates_the_count(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        for _ in range(2):
            sender = await PipelinedSender.open(broker.connection_string, TOPIC)
            # Sources of one seed draw the same ids.
            (documents,) = Source(1).invocations(Workload(keys=2, per_key=1), 1)
            await sender.send(encoded_batches(documents))
            await sender.close()

        with pytest.raises(RuntimeError, match="dropped or refused"):
            await broker.accepted()


@pytest.mark.skipif(len(AVAILABLE) < 2, reason="this system has one core, or does not say which ones there are")
async def test_the_broker_has_a_core_of_its_own_while_it_is_measured(broker: Broker) -> None:
    with broker.on_a_core_of_its_own():
        own, its_own = os.sched_getaffinity(0), os.sched_getaffinity(broker.process_id)

    assert len(its_own) == 1
    assert own == AVAILABLE - its_own
    assert os.sched_getaffinity(0) == os.sched_getaffinity(broker.process_id) == AVAILABLE


@pytest.mark.parametrize("telemetry", [False, True], ids=["without telemetry", "with telemetry"])
async def test_an_event_takes_more_than_its_encoding(telemetry: bool) -> None:
    found = await in_a_process(2, 1, 1, telemetry=telemetry)

    assert found.keys() == {"100x1", "10x10", "1x100"}
    assert {len(costs) for costs in found.values()} == {2}
    assert all(cost.whole > cost.own > 0 for costs in found.values() for cost in costs)
