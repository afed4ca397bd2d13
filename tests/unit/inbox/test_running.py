"""How many sessions a receiver waits for, what blocks its event loop, and the signals that stop it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from typing import Any

import pytest

from outbox_relay.inbox import event_loop
from outbox_relay.inbox.event_loop import Watchdog, stop_on_signals
from outbox_relay.inbox.receiver import FEWEST, AcceptWindow
from tests.support.inbox import watchdog_says
from tests.support.watchdog import WATCHDOG_S

# The width follows the load


def test_it_doubles_while_sessions_come_soon_up_to_all() -> None:
    width, busy = AcceptWindow(64), 0
    open_at_a_time = []
    while (wanted := width.wanted(busy)) > 0:
        open_at_a_time.append(wanted)
        busy += wanted
        for _ in range(wanted):
            width.came(0.5)

    assert open_at_a_time == [FEWEST, 60]


def test_sessions_that_come_now_and_then_do_not_widen_it_and_none_narrows_it() -> None:
    width = AcceptWindow(64)
    width.came(10.0)
    assert width.wanted(1) == FEWEST
    width.came(0.5)
    assert width.wanted(1) == 2 * FEWEST
    width.none_came()
    assert width.wanted(0) == FEWEST


def test_it_is_never_more_than_the_sessions() -> None:
    width = AcceptWindow(3)
    width.came(0.0)
    assert [width.wanted(busy) for busy in (0, 2, 3)] == [3, 1, 0]


# A blocked event loop is noticed while it is blocked


async def test_what_blocks_the_loop_is_named_while_it_does_and_when_it_goes_on() -> None:
    lines: list[str] = []
    noticed, over = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def said(line: str) -> None:
        lines.append(line)
        if "and goes on" in line:
            noticed.set()
        elif noticed.is_set():
            loop.call_soon_threadsafe(over.set)

    async def handle() -> None:
        assert noticed.wait(10)

    dog = Watchdog(60.0)
    dog.allow(0.2)
    with watchdog_says(said):
        dog.start()
        await asyncio.create_task(handle(), name="The handler of message 'e1' of session 'k'")
        await asyncio.wait_for(over.wait(), WATCHDOG_S)
        dog.stop()
    during, afterwards = [line for line in lines if "message 'e1'" in line]

    assert during.startswith("The handler of message 'e1' of session 'k' has blocked the event loop for 0.")
    assert "assert noticed.wait(10)" in during
    assert during.count("  File ") == 3  # the handler, and two lines of threading
    assert afterwards.startswith("The handler of message 'e1' of session 'k' blocked the event loop for 0.")


async def test_a_suspended_process_is_not_taken_for_a_blocked_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = accumulate(chain([0.0, 0.0, 30.0, 2.5], repeat(0.0)))
    monkeypatch.setattr(event_loop, "time", _Clock(clock))
    dog = Watchdog(10.0)
    looks = iter([False, True])
    monkeypatch.setattr(dog._ended, "wait", lambda _: next(looks))
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    dog.start()
    dog._watch()
    dog.stop()

    [record] = caplog.records
    assert record.getMessage().startswith("This process did not run for 30.0 s")


class _Clock:
    def __init__(self, readings: Iterator[float]) -> None:
        self._readings = readings

    def monotonic(self) -> float:
        return next(self._readings)


# The first signal stops it, and a second has its usual effect


class _Receiver:
    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("on_windows", [False, True])
async def test_the_first_signal_stops_it(
    number: signal.Signals, on_windows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise NotImplementedError

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
    signal.signal(number, usual)
    receiver = _Receiver()
    try:
        if on_windows:
            monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", refuse)
        stop_on_signals(receiver)
        signal.raise_signal(number)
        await asyncio.wait_for(receiver.stopped.wait(), WATCHDOG_S)

        assert signal.getsignal(number) is usual
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_signal_after_the_loop_has_its_usual_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))

    async def main() -> None:
        def refuse(*_: Any) -> None:
            raise NotImplementedError

        monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", refuse)
        stop_on_signals(_Receiver())

    try:
        kept = signal.getsignal(signal.SIGINT)
        asyncio.run(main())
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, kept)

    assert seen == [signal.SIGTERM]
