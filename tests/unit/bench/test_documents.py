"""The workloads of the benchmarks."""

from __future__ import annotations

import time
from collections import Counter

import orjson
import pytest

from bench.documents import ARTICLE, TWENTY_KB, TWO_KB, Source, Workload
from tests.support.outbox import sound


def test_a_batch_has_the_requested_events_of_each_key() -> None:
    batch = Source(1).batch(Workload(keys=10, per_key=7))

    assert set(Counter(document["partitionKey"] for document in batch).values()) == {7}
    assert len(batch) == Workload(keys=10, per_key=7).events == 70


def test_no_two_documents_of_a_source_share_an_id() -> None:
    source, workload = Source(1), Workload(keys=3, per_key=3, others=0.5)

    identifiers = [document["id"] for _ in range(50) for document in source.batch(workload)]

    assert len(set(identifiers)) == len(identifiers) == 50 * 18


def test_a_seed_determines_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    workload = Workload(keys=100, per_key=1, size=TWO_KB)

    assert Source(1).batch(workload) == Source(1).batch(workload)
    assert Source(1).batch(workload) != Source(2).batch(workload)


@pytest.mark.parametrize("size", [100, ARTICLE, 300, TWO_KB, TWENTY_KB, 200_000])
def test_an_event_has_data_of_about_the_requested_size(size: int) -> None:
    for document in Source(1).batch(Workload(keys=5, per_key=5, size=size)):
        assert len(orjson.dumps(document["data"])) == pytest.approx(size, rel=0.1)


@pytest.mark.parametrize(("others", "documents"), [(0.0, 100), (0.5, 200), (0.95, 2000)])
def test_documents_of_other_types_are_added_to_the_events(others: float, documents: int) -> None:
    batch = Source(1).batch(Workload(keys=10, per_key=10, others=others))

    assert len(batch) == documents
    assert sum(document["type"] == "domainEvent" for document in batch) == 100


def test_the_relay_accepts_every_event() -> None:
    for document in Source(1).batch(Workload(keys=3, per_key=2)):
        assert sound(document).id == document["id"]


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (Workload(100, 1), "100x1"),
        (Workload(10, 10, TWO_KB), "10x10 2 KB"),
        (Workload(10, 10, ARTICLE, 0.95), "10x10 95 % others"),
        (Workload(10, 10, 300), "10x10 300 B"),
    ],
)
def test_a_workload_is_named_after_its_shape(workload: Workload, name: str) -> None:
    assert workload.name == name
