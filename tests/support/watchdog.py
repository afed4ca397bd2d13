"""The one time limit of tests, for what has to happen: it ends a test that hangs, and none that is slow.

A start, a state or an event is awaited for `WATCHDOG_S`, however busy the machine is. The setting `timeout` in
pyproject.toml is longer, and ends what has no limit of its own.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

WATCHDOG_S = 600
"""Time for anything that has to happen, in seconds: many times what it takes on a busy machine."""

CAMPAIGN_S = 3000
"""Time for a campaign that takes minutes on an idle machine, in seconds."""

CAMPAIGN = pytest.mark.timeout(CAMPAIGN_S + WATCHDOG_S)

_AGAIN_S = 5.0
"""Seconds after which a test is ended again that has not ended: asyncio logs what is raised in its callbacks."""

_ARMED = pytest.StashKey[Any]()
_MAY_END = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Have the test ended again and again, and only where pytest takes the failure for the test's own.

    What is raised in a callback of asyncio ends nothing. While a report is made or sent, which takes its time on a
    busy machine, it would end the process of pytest-xdist, or the whole run, instead of the test.
    """
    armed = yield
    item.stash[_ARMED] = settings
    if sys.platform == "win32" or not signal.getitimer(signal.ITIMER_REAL)[0]:
        return armed
    end = signal.getsignal(signal.SIGALRM)

    def end_test(number: int, frame: FrameType | None) -> None:
        if item.stash.get(_MAY_END, False) and callable(end):
            end(number, frame)

    signal.signal(signal.SIGALRM, end_test)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, _AGAIN_S)
    return armed


@contextmanager
def _phase(item: pytest.Item) -> Iterator[None]:
    item.stash[_MAY_END] = True
    try:
        yield
    finally:
        item.stash[_MAY_END] = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _phase(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _phase(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the teardown of a test that has failed, too: pytest-timeout (2.4) ends its timer with the failure."""
    settings = item.stash.get(_ARMED, None)
    if settings is not None and sys.platform != "win32" and not signal.getitimer(signal.ITIMER_REAL)[0]:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)
    with _phase(item):
        return (yield)
