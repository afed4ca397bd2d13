"""Stops a receiver when the process is asked to end, on Windows too."""

from __future__ import annotations

import asyncio
import signal
from typing import Any, Protocol

_NAMES = ("SIGINT", "SIGTERM", "SIGBREAK")  # the last one on Windows: Ctrl+Break
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


class Stoppable(Protocol):
    """A `Receiver` or a `DeadLetterReceiver`."""

    def stop(self) -> None:
        """Make its `run` return."""


def stop_on_signals(receiver: Stoppable) -> None:
    """Call `receiver.stop()` at the first SIGINT or SIGTERM. A second one has its usual effect.

    Call it within the event loop, in the main thread.

    Raises:
        ValueError: This is not the main thread.
    """
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, _stop, loop, receiver, number)
        except NotImplementedError:
            _stop_without_loop(loop, receiver, number)


def _stop(loop: asyncio.AbstractEventLoop, receiver: Stoppable, number: signal.Signals) -> None:
    loop.remove_signal_handler(number)
    receiver.stop()


def _stop_without_loop(loop: asyncio.AbstractEventLoop, receiver: Stoppable, number: signal.Signals) -> None:
    """Stop on a signal on Windows, where loops have no signal handlers.

    The signal of `signal` wakes the loop all the same.
    """

    def stop(*_: Any) -> None:
        signal.signal(number, before)
        if loop.is_closed():
            signal.raise_signal(number)
        else:
            loop.call_soon_threadsafe(receiver.stop)

    before = signal.signal(number, stop)
