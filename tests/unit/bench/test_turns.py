"""Candidates take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
from azure.functions import DocumentList

from bench.broker import Broker
from bench.documents import Source, Workload
from bench.turns import Length, Samples, ratios, take_turns
from tests.unit.bench.support import RecordedProgress

WORKLOAD = Workload(keys=2, per_key=2)


class IdleBroker:
    """A broker that uses no processor time."""

    ack_delay_ms = 0

    def processor_seconds(self) -> float:
        return 0.0

    def on_a_core_of_its_own(self) -> AbstractContextManager[None]:
        return nullcontext()


class Recorder:
    """A candidate that records when it ran, and with which ids."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self.name = name
        self.identifiers: list[str] = []
        self._ran = ran
        self._prepared: Sequence[DocumentList] = ()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        self._prepared = invocations
        self.identifiers += [document["id"] for documents in invocations for document in documents]

    async def run(self) -> int:
        self._ran.append(self.name)
        await asyncio.sleep(0)
        return 2 * len(self._prepared)


async def turns(*candidates: Recorder, repeats: int = 3) -> tuple[dict[str, Samples], RecordedProgress]:
    progress = RecordedProgress()
    broker = cast(Broker, cast(Any, IdleBroker()))
    length = Length(repeats, seconds=0.0)
    found = await take_turns(candidates, WORKLOAD, broker, Source(1), length, progress)
    return found, progress


async def test_every_candidate_has_one_turn_per_repeat_and_the_order_rotates() -> None:
    ran: list[str] = []

    found, _ = await turns(Recorder("a", ran), Recorder("b", ran), Recorder("c", ran))

    calibration, measured = ran[:6], ran[6:]
    assert calibration == ["a", "a", "b", "b", "c", "c"]
    assert measured == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {name: len(samples.rates) for name, samples in found.items()} == {"a": 3, "b": 3, "c": 3}


async def test_no_id_is_used_in_two_turns() -> None:
    candidates = [Recorder(name, []) for name in "ab"]

    await turns(*candidates)

    identifiers = [identifier for each in candidates for identifier in each.identifiers]
    assert len(set(identifiers)) == len(identifiers) == 2 * (2 + 3) * WORKLOAD.events


async def test_every_turn_is_reported_with_its_rate() -> None:
    _, progress = await turns(Recorder("a", []), repeats=2)

    assert progress.steps == ["0 ms 2x2: a, 1 of 2", "0 ms 2x2: a, 2 of 2"]
    assert [unit for _, unit in progress.rates] == ["events/s", "events/s"]


def test_ratios_are_taken_within_each_repeat() -> None:
    ours, theirs = Samples(rates=[20.0, 30.0]), Samples(rates=[10.0, 10.0])

    assert ratios(ours, theirs) == pytest.approx((2.0, 3.0))
