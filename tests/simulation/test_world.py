"""A simulated world: what its processes, its clocks and its network of lines do."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from verification.simulation import determinism
from verification.simulation.channel import LineError, RpcChannel
from verification.simulation.world import EPOCH, EndlessError, Process, StuckError, World


@pytest.fixture
def world() -> World:
    return World("a test")


async def sleeping(log: list[str], *seconds: float) -> None:
    for each in seconds:
        await asyncio.sleep(each)
        log.append(f"{each:g}")


def test_an_hour_passes_at_once(world: World) -> None:
    process, log = world.process("p"), list[str]()

    world.run_task(process, sleeping(log, 3600), at_most_s=3601)

    assert world.now == pytest.approx(3600)
    assert log == ["3600"]


def test_nothing_of_a_killed_process_runs_any_more(world: World) -> None:
    process, log = world.process("p"), list[str]()

    async def work() -> None:
        try:
            await sleeping(log, 1, 1)
        finally:
            log.append("finally")

    process.start(work())
    world.outside.at(1.5, process.kill)
    with pytest.raises(StuckError):
        world.run(lambda: False, at_most_s=10)

    assert log == ["1"]


def test_a_frozen_process_continues_late_and_its_clock_has_gone_on(world: World) -> None:
    process, log = world.process("p"), list[str]()
    process.start(sleeping(log, 1, 1))
    world.outside.at(0.5, process.freeze)
    world.outside.at(5, process.resume)

    world.run(lambda: log == ["1"], at_most_s=60)
    first = world.now
    world.run(lambda: len(log) == 2, at_most_s=60)

    assert (first, world.now) == pytest.approx((5, 6))


def test_a_process_is_interrupted_between_two_of_its_callbacks(world: World) -> None:
    process, done = world.process("p"), list[int]()

    async def work() -> None:
        for number in range(10):
            done.append(number)
            await asyncio.sleep(0)

    process.start(work())
    process.interrupt_after(4, process.kill)
    with pytest.raises(StuckError):
        world.run(lambda: False, at_most_s=10)

    assert done == [0, 1, 2, 3]


def test_a_process_that_fails_ends_the_universe(world: World) -> None:
    async def fail() -> None:
        raise ValueError("a defect of a model")

    world.process("p").start(fail())

    with pytest.raises(RuntimeError) as caught:
        world.run(lambda: False, at_most_s=1)
    assert isinstance(caught.value.__cause__, ValueError)


def test_when_every_process_waits_for_another_one_that_is_said(world: World) -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    world.process("p").start(wait())

    with pytest.raises(StuckError):
        world.run(lambda: False, at_most_s=1)


def observed(seed: str) -> tuple[object, ...]:
    """Return the answers of the world to code that asks for time and randomness, in each way that there is."""
    world = World(seed)
    process = world.process("p")
    process.skew_s = 7

    async def look() -> tuple[object, ...]:
        await asyncio.sleep(3)
        return time.time(), time.monotonic(), datetime.now(UTC), uuid.uuid4(), random.random()

    with determinism.of(world):
        found: tuple[object, ...] = world.run_task(process, look(), at_most_s=10)
    return found


def test_time_and_randomness_are_the_worlds() -> None:
    with determinism.replaced():
        one, again, other = observed("1"), observed("1"), observed("2")

    assert one == again
    assert one[0] == EPOCH + 3 + 7
    assert one[2] == datetime.fromtimestamp(EPOCH + 10, UTC)
    assert one[3:] != other[3:]
    assert abs(time.time() - EPOCH) > 10


def test_another_thread_asks_the_machine_and_changes_nothing() -> None:
    found: list[float] = []

    def use() -> None:
        found.extend((time.time(), random.random(), *os.urandom(1)))
        uuid.uuid4()

    async def work() -> tuple[object, ...]:
        before = random.random(), uuid.uuid4()
        # There are no threads in a universe; this one began before it.
        other.submit(use).result()
        return *before, random.random(), uuid.uuid4()

    def draw(*, disturbed: bool) -> tuple[object, ...]:
        world = World("1")
        with determinism.of(world):
            drawn: tuple[object, ...] = world.run_task(world.process("p"), work() if disturbed else calm(), 10)
        return drawn

    async def calm() -> tuple[object, ...]:
        return random.random(), uuid.uuid4(), random.random(), uuid.uuid4()

    with determinism.replaced(), ThreadPoolExecutor(1) as other:
        other.submit(use).result()
        disturbed, calmly = draw(disturbed=True), draw(disturbed=False)

    assert disturbed == calmly
    assert abs(found[3] - EPOCH) > 10


@pytest.mark.parametrize(
    "act", [lambda: time.sleep(1), lambda: threading.Thread(target=print).start()], ids=["sleep", "thread"]
)
def test_what_needs_real_time_is_refused(world: World, act: Callable[[], None]) -> None:
    async def work() -> None:
        act()

    with (
        determinism.replaced(),
        determinism.of(world),
        pytest.raises(determinism.SimulationError, match="must not"),
    ):
        world.run_task(world.process("p"), work(), 10)


def test_the_number_and_the_machine_of_a_process_are_the_worlds(world: World) -> None:
    async def look() -> tuple[int, str]:
        return os.getpid(), socket.gethostname()

    with determinism.replaced(), determinism.of(world):
        one, other = (world.run_task(world.process(name), look(), 10) for name in ("p", "q"))

    assert (one, other) == ((2, "simulated"), (3, "simulated"))


class Interruption(BaseException):
    """Raised by the handler of a signal."""


@pytest.mark.parametrize(("error", "raised"), [(Interruption(), Interruption), (ValueError("no"), RuntimeError)])
def test_only_an_error_of_a_process_is_called_its_failure(
    world: World, error: BaseException, raised: type[BaseException]
) -> None:
    async def work() -> None:
        raise error

    world.process("p").start(work())
    with pytest.raises(raised):
        world.run(lambda: False, at_most_s=10)


def test_an_endless_loop_ends_the_universe(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verification.simulation.world._MOST_ROUNDS", 100)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    world.process("p").start(spin())
    with pytest.raises(EndlessError, match="p goes on after 100 rounds"):
        world.run(lambda: False, at_most_s=10)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_request_without_an_answer_may_have_been_carried_out(world: World, when: str) -> None:
    process, line, carried_out = world.process("p"), RpcChannel(world, "service", timeout_s=5), list[float]()
    line.loses = 1.0

    async def ask() -> None:
        await line.ask(lambda: carried_out.append(world.now))

    # Half of the lost ones are carried out.
    for _ in range(100):
        carried_out.clear()
        began = world.now
        with pytest.raises(LineError):
            world.run_task(process, ask(), at_most_s=10)
        assert world.now - began == pytest.approx(5)
        if bool(carried_out) is (when == "after"):
            return
    pytest.fail(f"no request of a hundred was lost {when} it was carried out")


@pytest.mark.parametrize("kind", ["down", "cut"])
def test_what_is_cut_off_gets_no_answer(world: World, kind: str) -> None:
    line = RpcChannel(world, "service", timeout_s=5)
    line.is_down, line.cut = kind == "down", {"p"} if kind == "cut" else set()

    async def ask() -> int:
        return await line.ask(lambda: 1)

    async def asked(process: Process) -> int | None:
        try:
            return await ask()
        except LineError:
            return None

    answers = [world.run_task(each, asked(each), 10) for each in (world.process("p"), world.process("q"))]
    assert answers == [None, 1 if kind == "cut" else None]
